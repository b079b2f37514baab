"""`quoth help` and `quoth errors`: the help of a command, the pages that are installed with it, the codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from quothcli.cli.command import argument, command, group
from quothcli.cli.command_codes import COMMAND_CODES
from quothcli.cli.exit_status import CommandStatus, Refused, status_of
from quothcli.cli.options import WithoutBroker
from quothcli.cli.usage import MEANT
from quothwire.errors import CODES, error
from quothwire.text import quantity, variables
from quothwire.text.suggestion import nearest

_DOCUMENTS = {
    "concepts": ("client/CONCEPTS.md", "topic, pointer, batch, durability, transaction"),
    "groups": ("client/GROUPS.md", "consumer groups: promises, leases, order, dead letters, commands"),
    "tracing": ("client/TRACING.md", "OpenTelemetry: trace context in headers, spans"),
    "operations": ("systemd/OPERATIONS.md", "operate, monitor, back up, upgrade, size, secure"),
    "security": ("systemd/SECURITY.md", "who may attack, what protects against what, and what does not"),
    "rules": ("broker/quothrules/RULES.md", "routing rules: files, conditions, templates, what they promise"),
    "dashboard": (
        "tools/quothweb/DASHBOARD.md",
        "pages for a person: what each shows, who may look, what is never sent",
    ),
    "gateway": ("tools/quothweb/GATEWAY.md", "topics, records and groups over HTTP; tokens, errors, limits"),
    "protocol": ("client/PROTOCOL.md", "the wire contract, with every error code and limit"),
    "format": ("broker/FORMAT.md", "the bytes on disk, and what is done about damage"),
    "design": ("broker/DESIGN.md", "threads, the way of a publish and of a read"),
    "spark": ("client/python/quoth/spark/README.md", "topics as tables and streams in Spark"),
    "benchmarks": ("tools/quothbench/BENCHMARKS.md", "measured figures and their commands"),
    "reference": ("tools/REFERENCE.md", "every command and option"),
}
FILES = {name: path for name, (path, _) in _DOCUMENTS.items()}
"""The pages that are files of the source tree. A built package has them as pages/NAME.md."""
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

_ALL = (*CODES, *COMMAND_CODES)


def _names(incomplete: str) -> list[str]:
    from quothcli.application import COMMANDS

    return [name for name in (*PAGES, *COMMANDS) if name.startswith(incomplete)]


@command(app, "help", "quoth help", "quoth help protocol | less", "quoth help topic create")
def show(
    words: Annotated[
        list[str] | None,
        argument(
            "[PAGE|COMMAND]",
            "A page, or a command with its subcommand; without it the pages are listed.",
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


@command(app, "errors", "quoth errors", "quoth errors disk_low")
def errors(
    session: WithoutBroker,
    code: Annotated[
        str | None,
        argument(
            "CODE",
            "The code of an error; without it, all are explained.",
            autocompletion=lambda incomplete: [one for one in _ALL if one.startswith(incomplete)],
        ),
    ] = None,
) -> None:
    """Explain the codes of errors: what happened, what to do.

    No broker is needed. The codes of the protocol come first, then those of the command `quoth` itself.
    """
    printer = session.printer
    if code is not None and code not in _ALL:
        near = nearest(code, _ALL)
        hint = f"did you mean {near}?" if near else "`quoth errors` lists them"
        raise Refused("unknown_code", f"no error has the code {code!r}", hint, CommandStatus.NOT_FOUND)
    for name in [code] if code else _ALL:
        printer.answer(_explained(name), _content(name), name)


def shipped(built: str, source: str) -> str:
    """Read a file that comes with the command: from the package once that is built, else from a checkout."""
    package = Path(__file__).resolve().parents[2]
    path = package / built
    return (path if path.exists() else package.parents[1] / source).read_text("utf-8")


def page(name: str) -> str:
    """Read one of the `FILES`."""
    return shipped(f"pages/{name}.md", FILES[name])


def _content(code: str) -> dict[str, Any]:
    """Make the object of a code. One of the command itself has no class in Python."""
    if code in COMMAND_CODES:
        own = COMMAND_CODES[code]
        content = {"code": code, "meaning": own.meaning, "retryable": False, "hint": own.hint}
        return {**content, "error": None, "exit_status": int(own.status)}
    row = CODES[code]
    return {
        "code": code,
        "meaning": row.meaning,
        "retryable": row.retryable,
        "hint": row.hint,
        "error": row.error.__name__,
        "exit_status": int(status_of(error(code, ""))),
    }


def _explained(code: str) -> str:
    """Explain a code in lines of text: what happened, what to do, the exit status."""
    of = _content(code)
    again = "may succeed if tried again" if of["retryable"] else "fails again if tried again"
    where = f"quoth.{of['error']} in Python" if of["error"] else "of the command `quoth`"
    last = f"{again}; {where}; exit status {of['exit_status']}"
    return f"{code}\n  {of['meaning']}\n  hint: {of['hint']}\n  {last}"


def _errors() -> str:
    return "\n\n".join(map(_explained, _ALL)) + "\n"


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
    meant = MEANT.get(tuple(words), "-")
    if not meant.startswith("-"):
        return meant
    near = nearest(words[-1], names)
    return " ".join([*words[:-1], near]) if near else ""


class Page(NamedTuple):
    """A page of `quoth help`. read: returns its text."""

    about: str
    read: Callable[[], str]


PAGES = {name: Page(about, partial(page, name)) for name, (_, about) in _DOCUMENTS.items()} | {
    "errors": Page("every code: what happened, whether to try again, what to do", _errors),
    "quantities": Page("how spans of time, sizes and times are written", lambda: _QUANTITIES),
    "variables": Page("every environment variable", _variables),
    "configuration": Page("every key of the daemon, its default and its reason", _configuration),
}
"""Every page by its name."""
