"""`quoth help`: prints the help of a command, and the pages that are installed with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from typer import Argument

from quothcli.cli.aliases import MEANT
from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus, Refused
from quothwire.text import quantity, variables
from quothwire.text.suggestion import nearest

FILES = MappingProxyType(
    {
        "concepts": "client/CONCEPTS.md",
        "operations": "systemd/OPERATIONS.md",
        "protocol": "client/PROTOCOL.md",
        "format": "broker/FORMAT.md",
        "design": "broker/DESIGN.md",
        "spark": "client/python/quoth/spark/README.md",
        "benchmarks": "tools/quothbench/BENCHMARKS.md",
        "reference": "tools/REFERENCE.md",
    }
)
"""The pages that are files of the source tree. A built package has them as BUILT/NAME.md."""
BUILT = "pages"
_COMMANDS_TOO = (
    "`quoth help COMMAND` prints what `quoth COMMAND --help` prints, unless a page has that name.\n"
    "`quoth --help` lists the commands."
)
_QUANTITIES = f"""\
A span of time is a number of seconds, or text with units: {quantity.SPAN_EXAMPLES.removeprefix("like ")}.
Units: w, d, h, m, s, ms, us, and in words: 1 day 12 hours.

A size is a number of bytes, or text with one unit: {quantity.SIZE_EXAMPLES.removeprefix("like ")}.
kB, MB, GB, TB are powers of 1,000, KiB, MiB, GiB, TiB of 1,024.

infinity stands for no limit, where there may be none.

A time is one of
  2026-01-02T03:04:05Z   date and time, UTC unless a zone like +01:00 is given
  2026-01-02             the beginning of that day
  -15m, -1d3h            so long before now
  now
  1767323045000001       a pointer: microseconds since 1970

The same texts are read by every command, by the daemon's options, by its file and environment, and by
create_topic(max_age="7d", max_bytes="1GiB") in Python.
"""


app = group()


def _names(incomplete: str) -> list[str]:
    from quothcli.application import COMMANDS

    return [name for name in (*PAGES, *COMMANDS) if name.startswith(incomplete)]


@command(app, "help", "quoth help", "quoth help protocol | less", "quoth help topic create")
def show(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[PAGE|COMMAND]",
            help="A page, or a command with its subcommand; without it the pages are listed.",
            show_default=False,
            autocompletion=_names,
        ),
    ] = None,
) -> None:
    """Print a page about Quoth, or the help of a command.

    The pages are installed with the command: the protocol, the formats, errors, spans and sizes, variables.
    """
    if not words:
        rows = [f"  {name:<14} {one.about}" for name, one in PAGES.items()]
        print("\n".join(["Pages, printed by `quoth help PAGE`:", *rows, "", _COMMANDS_TOO]))
    elif len(words) == 1 and words[0] in PAGES:
        print(PAGES[words[0]].read(), end="")
    else:
        _print_help(words)


def page(name: str) -> str:
    """Read one of the `FILES`: from the package once that is built, from the source tree in a checkout."""
    here = Path(__file__).resolve()
    built = here.parents[2] / BUILT / f"{name}.md"
    return (built if built.exists() else here.parents[4] / FILES[name]).read_text("utf-8")


def _errors() -> str:
    from quothcli.commands.about.errors import explained
    from quothwire.errors import CODES

    return "\n\n".join(explained(code) for code in CODES) + "\n"


def _variables() -> str:
    from quothd.config.config import KEYS

    others = [f"{name:<26} {text}" for name, text in variables.OTHERS.items()]
    keys = [f"{variables.variable(key.name):<26} {key.summary}" for key in KEYS.values()]
    return "\n".join([*others, *keys, ""])


def _configuration() -> str:
    from quothd.config import template

    return template.text()


def _print_help(words: list[str]) -> None:
    """Print the help of a command. Raises `Refused` ``unknown_page``."""
    from quothcli.application import COMMANDS, root
    from quothcli.cli.command import Group

    group = root()
    found: Any = group
    for place, word in enumerate(words):
        below = found.list_commands(None) if isinstance(found, Group) else []
        if word not in below:
            meant = _meant(words[: place + 1], sorted({*PAGES, *COMMANDS} if found is group else below))
            hint = f"did you mean `quoth help {meant}`?" if meant else "`quoth help` lists the pages"
            text = f"there is no page and no command {' '.join(words)!r}"
            raise Refused("unknown_page", text, hint, CommandStatus.NOT_FOUND)
        found = found.get_command(None, word)
    with group.make_context("quoth", [*words, "--help"]) as context:
        group.invoke(context)


def _meant(words: list[str], names: list[str]) -> str:
    """Return the page or command that may be meant, empty if there is none. names: for the last word."""
    for meaning in MEANT.get(tuple(words), ()):
        if not meaning.startswith("-"):
            return meaning
    near = nearest(words[-1], names)
    return " ".join([*words[:-1], near]) if near else ""


class Page(NamedTuple):
    """A page of `quoth help`. read: returns its text."""

    about: str
    read: Callable[[], str]


PAGES = MappingProxyType(
    {
        "concepts": Page("topic, pointer, batch, durability, transaction", partial(page, "concepts")),
        "operations": Page("operate, monitor, back up, upgrade, size, secure", partial(page, "operations")),
        "protocol": Page("the wire contract, with every error code and limit", partial(page, "protocol")),
        "format": Page("the bytes on disk, and what is done about damage", partial(page, "format")),
        "design": Page("threads, the way of a publish and of a read", partial(page, "design")),
        "spark": Page("topics as tables and streams in Spark", partial(page, "spark")),
        "benchmarks": Page("measured figures and their commands", partial(page, "benchmarks")),
        "reference": Page("every command and option", partial(page, "reference")),
        "errors": Page("every code: what happened, whether to try again, what to do", _errors),
        "quantities": Page("how spans of time, sizes and times are written", lambda: _QUANTITIES),
        "variables": Page("every environment variable", _variables),
        "configuration": Page("every key of the daemon, its default and its reason", _configuration),
    }
)
"""Every page by its name."""
