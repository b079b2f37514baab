"""`quoth config`: the configuration of a broker with the source of each value, a check, and an example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from quothcli.cli.command import command, group, option
from quothcli.cli.config_options import key_options
from quothcli.cli.options import WithoutBroker
from quothd.config.config import KEYS, SCHEMA, Config
from quothd.config.sources import read
from quothwire.config.arguments import FILE_HELP
from quothwire.config.sources import Sourced

File = Annotated[Path | None, option("--config FILE", FILE_HELP)]


Keys = Annotated[dict[str, Any], key_options(SCHEMA)]
"""The keys of the configuration, as options."""

app = group("The configuration of a broker: show it, check it, begin one.")


@command(app, "show", "quoth config show --config /etc/quoth/quothd.toml", "quoth config show --format json")
def show(session: WithoutBroker, keys: Keys, *, config: File = None) -> None:
    """Print every key, its value, and where that comes from.

    That is an option, a variable, FILE:LINE, or the default. A broker that was started here with the same
    options would go by it.
    """
    from quothwire.config.template import toml

    printer = session.printer
    found = read(keys, file=config)
    values = {name: toml(key, getattr(found.config, name)) for name, key in KEYS.items()}
    widths = max(map(len, KEYS)), max(map(len, values.values()))
    for name, value in values.items():
        line = f"{name:<{widths[0]}}  {value:<{widths[1]}}  {found.origin(name)}"
        printer.answer(line, _content(found, name), raw=f"{name} = {value}")


@command(app, "check", "quoth config check --config /etc/quoth/quothd.toml --dir /var/lib/quoth")
def check(keys: Keys, *, config: File = None) -> int:
    """Check a configuration without starting a broker.

    The file, every value, the directory and the addresses are looked at; nothing is made, bound or locked.
    Then it prints what differs from the defaults. Exit status: 0 it could, 2 it could not.
    """
    from quothd.config.check import print_check

    return print_check(keys, config)


@command(app, "example", "quoth config example > quothd.toml", "quoth config example --web > quoth-web.toml")
def example(
    *, web: Annotated[bool, option("--web", "The file of `quoth web` instead of the broker's.")] = False
) -> None:
    """Print a TOML file with every key, its default and its reason."""
    if web:
        from quothweb.config import example as text
    else:
        from quothd.config.template import text
    print(text(), end="")


def _content(found: Sourced[Config], name: str) -> dict[str, Any]:
    """Make the object of a key. reload: SIGHUP changes it in a broker that runs."""
    value, default = getattr(found.config, name), KEYS[name].default
    return {
        "key": name,
        "value": str(value) if isinstance(value, Path) else value,
        "origin": found.origin(name),
        "default": str(default) if isinstance(default, Path) else default,
        "reload": KEYS[name].live,
    }
