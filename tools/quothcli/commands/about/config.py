"""`quoth config`: what counts and where it comes from, whether it is right, and a file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from quothcli.cli.command import command, group, spread
from quothcli.cli.config_options import File, key_options
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer

if TYPE_CHECKING:
    from quothd.config.sources import Sourced


def add(app: typer.Typer) -> None:
    """Put `config` into the command."""
    made = group("The configuration of a broker: show it, check it, begin one.")
    app.add_typer(made, name="config")
    file = "--config /etc/quoth/quothd.toml"
    keys = spread("keys", key_options())
    command(made, "show", f"quoth config show {file}", "quoth config show --format json")(keys(show))
    command(made, "check", f"quoth config check {file} --dir /var/lib/quoth")(keys(check))
    command(made, "example", "quoth config example > quothd.toml")(print_example)


def show(context: typer.Context, *, config: File = None, form: Form = None, keys: dict[str, Any]) -> None:
    """Print every key, its value, and where that comes from.

    That is an option, a variable, FILE:LINE, or the default. A broker that was started here with the same
    options would go by it.
    """
    from quothd.config import template
    from quothd.config.config import KEYS
    from quothd.config.sources import read

    printer = Printer(chosen(context, form=form).format)
    found = read(keys, file=config)
    values = {name: template.toml(key, getattr(found.config, name)) for name, key in KEYS.items()}
    widths = max(map(len, KEYS)), max(map(len, values.values()))
    for name, value in values.items():
        line = f"{name:<{widths[0]}}  {value:<{widths[1]}}  {found.origin(name)}"
        printer.answer(line, _content(found, name), raw=f"{name} = {value}")


def check(*, config: File = None, keys: dict[str, Any]) -> int:
    """Say whether a broker could start with this, without starting one.

    The file, every value, the directory and the addresses are looked at; nothing is made, bound or locked.
    Then it says in what it differs from the defaults. Exit status: 0 it could, 2 it could not.
    """
    from quothd.config.check import print_check

    return print_check(keys, config)


def print_example() -> None:
    """Print a TOML file with every key, its default and its reason."""
    from quothd.config import template

    print(template.text(), end="")


def _content(found: Sourced, name: str) -> dict[str, Any]:
    """A key as an object of JSON. reload: SIGHUP changes it in a broker that runs."""
    from quothd.config.config import KEYS

    value, default = getattr(found.config, name), KEYS[name].default
    return {
        "key": name,
        "value": str(value) if isinstance(value, Path) else value,
        "origin": found.origin(name),
        "default": str(default) if isinstance(default, Path) else default,
        "reload": KEYS[name].live,
    }
