"""`quoth topic`: list, show, make, change, trim and delete topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from quothcli.cli.command import command, group, spread
from quothcli.cli.exit_status import Status
from quothcli.cli.options import Form, Timeout, Topic, Url, moment
from quothcli.cli.session import chosen
from quothcli.printing.asking import Yes, is_confirmed
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer, bytes_text, moment_text, printable, records_text
from quothwire.errors import QuothError, error
from quothwire.settings import DURABILITIES, as_sent, in_words

if TYPE_CHECKING:
    from quothwire.protocol.messages import TopicInfo, Trimmed


class _Option(NamedTuple):
    """The option of a setting: what it takes and what it is for."""

    metavar: str
    help: str


_SETTINGS = {
    "durability": _Option("LEVEL", "What an acknowledgement means by default: written or synced."),
    "max_age": _Option("SPAN", "Remove older records: 7d, 1d12h; infinity: never."),
    "max_bytes": _Option("SIZE", "Remove the oldest above this: 10GiB, 500MB; infinity: never."),
    "size_limit": _Option("SIZE", "Begin a new segment at this size."),
    "count_limit": _Option("N", "Begin a new segment after N records; 0: no limit."),
    "age_limit": _Option("SPAN", "Begin a new segment at this age; infinity: no limit."),
}
"""Every setting of a topic, as an option."""
_OPTIONS = {
    name: Annotated[
        str | None, typer.Option(f"--{name.replace('_', '-')}", metavar=one.metavar, help=one.help)
    ]
    for name, one in _SETTINGS.items()
}
_Typed = dict[str, str | None]


def add(app: typer.Typer) -> None:
    """Put `topic` and its commands into the command."""
    topic = group("List, show, make, change, trim and delete topics.")
    app.add_typer(topic, name="topic")
    command(topic, "ls", "quoth topic ls", "quoth topic ls --format json")(ls)
    command(topic, "info", "quoth topic info orders")(info)
    command(topic, "create", "quoth topic create orders --durability synced --max-age 30d")(create)
    command(topic, "set", "quoth topic set orders --max-age 7d --max-bytes 10GiB")(change)
    command(topic, "rm", "quoth topic rm orders", "quoth topic rm orders --yes")(remove)
    command(topic, "trim", "quoth topic trim orders --before -7d")(trim)
    command(topic, "roll", "quoth topic roll orders")(roll)


def ls(context: typer.Context, url: Url = None, timeout: Timeout = None, form: Form = None) -> None:
    """List the names of all topics."""
    asked = chosen(context, url, timeout, form)
    printer = Printer(asked.format)
    with asked.connect() as client:
        for name in client.topics():
            printer.answer(name, {"name": name})


def info(
    context: typer.Context, topic: Topic, url: Url = None, timeout: Timeout = None, form: Form = None
) -> None:
    """Show everything about one topic. It is not woken."""
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        _print(Printer(asked.format), client.topic(topic))


@spread("settings", _OPTIONS)
def create(
    context: typer.Context,
    topic: Topic,
    settings: _Typed,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Make a topic; what is not given is as the broker is configured."""
    asked = chosen(context, url, timeout, form)
    wanted = _read(settings)
    with asked.connect() as client:
        _print(Printer(asked.format), client.create_topic(topic, **wanted))


@spread("settings", _OPTIONS)
def change(
    context: typer.Context,
    topic: Topic,
    settings: _Typed,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Change settings of a topic; what is not given stays."""
    asked = chosen(context, url, timeout, form)
    wanted = _read(settings)
    if not wanted:
        raise typer.BadParameter("say what to change, like --max-age 7d")
    with asked.connect() as client:
        _print(Printer(asked.format), client.update_topic(topic, **wanted))


def remove(
    context: typer.Context,
    topic: Topic,
    yes: Yes = False,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Delete a topic and all its records.

    It asks first; without a terminal it needs --yes.
    """
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        found = client.topic(topic)
        question = f"Delete topic {printable(topic)!r} with {records_text(found.count)}?"
        if not is_confirmed(question, yes=yes):
            return Status.FAILED
        _print_trimmed(Printer(asked.format), topic, client.delete_topic(topic), "deleted")
    return None


def trim(
    context: typer.Context,
    topic: Topic,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Remove what is older: a pointer, a time, or -7d.",
        ),
    ],
    yes: Yes = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Remove nothing: say what is older, which is the most that can go."),
    ] = False,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Remove old records, a whole segment at a time.

    The segments go that hold nothing but records before the given time; a segment that holds a younger one
    stays whole, so fewer records may go than are older. It asks first, unless nothing is older; without a
    terminal it needs --yes.
    """
    from quothwire.protocol.messages import Trimmed

    asked = chosen(context, url, timeout, form)
    limit = moment(before) or 0
    printer = Printer(asked.format)
    with asked.connect() as client:
        found = client.topic(topic)
        older = client.count(topic, 0, max(0, limit - 1))
        most = (
            f"up to {records_text(older.records)} ({bytes_text(older.bytes)}) older than {moment_text(limit)}"
        )
        segments = f"Only whole segments go, and topic {printable(topic)!r} has {found.segments:,}."
        if dry_run:
            content = {"topic": topic, "before": limit, "segments": found.segments}
            maxima = {"records_max": older.records, "bytes_max": older.bytes}
            printer.answer(f"would remove {most}. {segments}", content | maxima, older.records)
        elif not older.records:
            content = {"topic": topic, **asdict(Trimmed(0, 0, found.first))}
            printer.answer(f"nothing is older than {moment_text(limit)}", content, 0)
        elif is_confirmed(f"{segments} Remove {most}?", yes=yes):
            _print_trimmed(printer, topic, client.trim(topic, limit), "removed")
        else:
            return Status.FAILED
    return None


def roll(
    context: typer.Context, topic: Topic, url: Url = None, timeout: Timeout = None, form: Form = None
) -> None:
    """Seal the segment that is being written and begin a new one."""
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        _print(Printer(asked.format), client.roll(topic))


def _read(settings: _Typed) -> dict[str, Any]:
    """The settings that were typed, as the broker takes them. Raises ``bad_setting`` naming the option."""
    read: dict[str, Any] = {}
    for name, text in settings.items():
        if text is None:
            continue
        try:
            read |= as_sent({name: _count(text) if name == "count_limit" else text})
        except QuothError as problem:
            option = f"--{name.replace('_', '-')}"
            raise error(
                problem.code, f"{option}: {problem.text.removeprefix(f'{name}: ')}", problem.hint
            ) from None
    if (level := read.get("durability", DURABILITIES[0])) not in DURABILITIES:
        raise error("bad_setting", f"--durability: {level!r} is no durability", " or ".join(DURABILITIES))
    return read


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise error("bad_setting", f"{text!r} is no number of records", "like 100000; 0: no limit")
    return int(text)


def _print(printer: Printer, found: TopicInfo) -> None:
    content = {**asdict(found), "first_time": moment_text(found.first), "last_time": moment_text(found.last)}
    if printer.form is Format.JSON:
        printer.object(content)
        return
    rows = {
        "name": printable(found.name),
        "log": f"{found.log:016x}",
        "records": f"{found.count:,}"
        + (f", {found.first_ordinal:,} older ones are gone" if found.first_ordinal else ""),
        "first": f"{found.first}  {moment_text(found.first)}",
        "last": f"{found.last}  {moment_text(found.last)}",
        "size": f"{bytes_text(found.bytes)}, segments {found.states}",
        **in_words(found.settings),
        **({"problem": printable(found.problem)} if found.problem else {}),
        **{name: f"{value:,}" for name, value in found.counters.items() if value},
    }
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        printer.line(f"{name:<{width}}{value}")


def _print_trimmed(printer: Printer, topic: str, trimmed: Trimmed, done: str) -> None:
    text = f"{done} {records_text(trimmed.records)}, {bytes_text(trimmed.bytes)}"
    if trimmed.first:
        text += f"; the oldest is now {trimmed.first}, {moment_text(trimmed.first)}"
    printer.answer(text, {"topic": topic, **asdict(trimmed)}, trimmed.records)
