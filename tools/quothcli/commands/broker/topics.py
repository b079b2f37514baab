"""`quoth topic`: lists, shows, makes, changes, trims and deletes topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter

from quoth.timestamps import as_pointer
from quothcli.cli.command import SharedOptions, as_typed, command, group, option
from quothcli.cli.options import Topic, WithBroker, Yes
from quothcli.cli.questions import confirm
from quothcli.printing.output import Format, Printer
from quothcli.printing.text import bytes_text, printable, records_text, time_or_dash
from quothwire.errors import QuothError, error
from quothwire.settings import DURABILITIES, as_sent, in_words

if TYPE_CHECKING:
    from quothwire.protocol.messages import TopicInfo, Trimmed


_SETTINGS = {
    "durability": ("LEVEL", "What an acknowledgement means by default: written or synced."),
    "max_age": ("SPAN", "Remove older records: 7d, 1d12h; infinity: never."),
    "max_bytes": ("SIZE", "Remove the oldest above this: 10GiB, 500MB; infinity: never."),
    "size_limit": ("SIZE", "Begin a new segment at this size."),
    "count_limit": ("N", "Begin a new segment after N records; 0: no limit."),
    "age_limit": ("SPAN", "Begin a new segment at this age; infinity: no limit."),
    "retention": ("RULE", "until_acked: remove what all groups have finished, too; limits: do not."),
}
"""Every setting of a topic, as an option: its metavar and its help."""
_OPTIONS = {
    name: Annotated[str | None, option(f"--{name.replace('_', '-')} {metavar}", text)]
    for name, (metavar, text) in _SETTINGS.items()
}
_Settings = Annotated[dict[str, str | None], SharedOptions(_OPTIONS, as_typed)]


app = group("List, show, make, change, trim and delete topics.")


@command(app, "ls", "quoth topic ls", "quoth topic ls --format json")
def ls(session: WithBroker) -> None:
    """List the names of all topics."""
    printer = session.printer
    with session.connect() as client:
        for name in client.topics():
            printer.answer(name, {"name": name})


@command(app, "info", "quoth topic info orders")
def info(session: WithBroker, topic: Topic) -> None:
    """Show everything about one topic. A hibernating one stays so."""
    with session.connect() as client:
        _print(session.printer, client.topic(topic))


@command(app, "create", "quoth topic create orders --durability synced --max-age 30d")
def create(session: WithBroker, topic: Topic, settings: _Settings) -> None:
    """Make a topic; settings that are not given are those of the broker."""
    wanted = _read(settings)
    with session.connect() as client:
        _print(session.printer, client.create_topic(topic, **wanted))


@command(app, "set", "quoth topic set orders --max-age 7d --max-bytes 10GiB")
def change(session: WithBroker, topic: Topic, settings: _Settings) -> None:
    """Change settings of a topic; those that are not given stay."""
    wanted = _read(settings)
    if not wanted:
        raise BadParameter("say what to change, like --max-age 7d")
    with session.connect() as client:
        _print(session.printer, client.update_topic(topic, **wanted))


@command(app, "rm", "quoth topic rm orders", "quoth topic rm orders --yes")
def remove(session: WithBroker, topic: Topic, yes: Yes = False) -> None:
    """Delete a topic and all its records.

    It asks first; without a terminal it needs --yes.
    """
    with session.connect() as client:
        found = client.topic(topic)
        confirm(f"Delete topic {printable(topic)!r} with {records_text(found.count)}?", yes=yes)
        _print_trimmed(session.printer, topic, client.delete_topic(topic), "deleted")


@command(app, "trim", "quoth topic trim orders --before -7d")
def trim(
    session: WithBroker,
    topic: Topic,
    before: Annotated[
        int, option("--before TIME", "Remove older records: a pointer, a time, or -7d.", parser=as_pointer)
    ],
    yes: Yes = False,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run", "Remove nothing; print how many records are older, which is the most that can go."
        ),
    ] = False,
) -> None:
    """Remove old records, a whole segment at a time.

    The segments go that hold nothing but records before the given time; a segment that holds a younger one
    stays whole, so fewer records may go than are older. It asks first, unless nothing is older; without a
    terminal it needs --yes.
    """
    from quothwire.protocol.messages import Trimmed

    printer = session.printer
    with session.connect() as client:
        found = client.topic(topic)
        older = client.count(topic, 0, max(0, before - 1))
        amount = f"{records_text(older.records)} ({bytes_text(older.bytes)})"
        most = f"up to {amount} older than {time_or_dash(before)}"
        segments = f"Only whole segments go, and topic {printable(topic)!r} has {found.segments:,}."
        if dry_run:
            content = {"topic": topic, "before": before, "segments": found.segments}
            maxima = {"records_max": older.records, "bytes_max": older.bytes}
            printer.answer(f"would remove {most}. {segments}", content | maxima, older.records)
        elif not older.records:
            content = {"topic": topic, **asdict(Trimmed(0, 0, found.first))}
            printer.answer(f"nothing is older than {time_or_dash(before)}", content, 0)
        else:
            confirm(f"{segments} Remove {most}?", yes=yes)
            _print_trimmed(printer, topic, client.trim(topic, before), "removed")


@command(app, "roll", "quoth topic roll orders")
def roll(session: WithBroker, topic: Topic) -> None:
    """Seal the segment that is being written and begin a new one."""
    with session.connect() as client:
        _print(session.printer, client.roll(topic))


def _read(settings: dict[str, str | None]) -> dict[str, Any]:
    """Parse the settings that were typed. Raises ``bad_setting`` naming the option."""
    read: dict[str, Any] = {}
    for name, text in settings.items():
        if text is None:
            continue
        try:
            read |= as_sent({name: _count(text) if name == "count_limit" else text})
        except QuothError as problem:
            option = f"--{name.replace('_', '-')}"
            text = problem.text.removeprefix(f"{name}: ")
            raise error(problem.code, f"{option}: {text}", problem.hint) from None
    if (level := read.get("durability", DURABILITIES[0])) not in DURABILITIES:
        raise error("bad_setting", f"--durability: {level!r} is no durability", " or ".join(DURABILITIES))
    return read


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise error("bad_setting", f"{text!r} is no number of records", "like 100000; 0: no limit")
    return int(text)


def _print(printer: Printer, found: TopicInfo) -> None:
    first, last = time_or_dash(found.first), time_or_dash(found.last)
    if printer.form is Format.JSON:
        printer.object({**asdict(found), "first_time": first, "last_time": last})
        return
    gone = f", {found.first_ordinal:,} older ones are gone" if found.first_ordinal else ""
    rows = {
        "name": printable(found.name),
        "log": f"{found.log:016x}",
        "records": f"{found.count:,}{gone}",
        "first": f"{found.first}  {first}",
        "last": f"{found.last}  {last}",
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
        text += f"; the oldest is now {trimmed.first}, {time_or_dash(trimmed.first)}"
    printer.answer(text, {"topic": topic, **asdict(trimmed)}, trimmed.records)
