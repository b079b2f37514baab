"""`quoth log`: look at a log's files without a broker, or beside one. Nothing is locked or changed.

A directory may be that of an embedded log, a topic's folder, or a broker's whole data directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import unquote

import typer

from quoth import Message
from quothcli.command import command, group
from quothcli.exits import Status, say
from quothcli.options import After, Form, Format, Limit, chosen, moment
from quothcli.output import Printer, moment_text, printable, records_text
from quothd import topicfile
from quothlog import inspection
from quothlog.inspection import Damage, Summary, Unfinished
from quothwire.errors import QuothError, error

_FOLDER = re.compile(r"([^.].*)~[0-9a-f]{16}")

_Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="An embedded log, a topic's folder or a broker's data directory.",
        show_default=False,
    ),
]
_Only = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic of a data directory.")
]


class Place(NamedTuple):
    """Where a log lies, and the name of its topic."""

    topic: str
    directory: Path


def add(app: typer.Typer) -> None:
    """Put `log` and its commands into the command."""
    log = group("Look at a log's files, with or without a broker.")
    app.add_typer(log, name="log")
    command(log, "ls", "quoth log ls /var/lib/quoth", "quoth log ls quoth-data --quick --format json")(ls)
    command(
        log,
        "dump",
        "quoth log dump quoth-data --topic orders --format json",
        "quoth log dump device/readings --after 1767323045000001 --limit 10",
    )(dump)


def ls(
    context: typer.Context,
    directory: _Directory,
    only: _Only = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Believe what sealed segments say of themselves, verify nothing.")
    ] = False,
    form: Form = None,
) -> int:
    """List the segments of a log, verified.

    Every checksum is verified; what is damaged is reported on stderr and makes the exit status 1.
    """
    printer = Printer(chosen(context, form=form).format)
    status = Status.DONE
    headings = [_HEADINGS] if printer.form is Format.TEXT else []
    for place in places(directory, only):
        with _readable(place, directory) as trouble:
            for summary in inspection.summaries(place.directory, quick=quick):
                while headings:
                    printer.line(headings.pop())
                _print(printer, place, summary)
                printer.flush()
                for damage in summary.damages:
                    status = max(status, _report(damage))
        status = max(status, *trouble)
    return status


def dump(
    context: typer.Context,
    directory: _Directory,
    only: _Only = None,
    after: After = None,
    limit: Limit = None,
    form: Form = None,
) -> int:
    """Print the records of a log.

    What is damaged is reported on stderr, stepped over, and makes the exit status 1.
    """
    printer = Printer(chosen(context, form=form).format)
    begin = moment(after) or 0
    status = Status.DONE
    count = 0
    logs = places(directory, only)
    for place in logs:
        if count == limit:
            break
        with _readable(place, directory) as trouble:
            for found in inspection.records(place.directory, begin):
                if isinstance(found, Damage | Unfinished):
                    printer.flush()
                    status = max(status, _report(found))
                    continue
                printer.message(Message(place.topic, *found), with_topic=len(logs) > 1)
                count += 1
                if count == limit:
                    break
        status = max(status, *trouble)
    return status


def places(directory: Path, only: str | None = None) -> list[Place]:
    """The logs in a directory. Raises FileNotFoundError, or `NotFound` if the topic is not among them."""
    topics = directory / "topics"
    below = topics if topics.is_dir() else directory
    folders = [path for path in sorted(below.iterdir()) if _FOLDER.fullmatch(path.name) and path.is_dir()]
    found = [Place(_name(path), path) for path in folders]
    if not folders and below is directory:
        found = [Place(_name(directory.resolve()), directory)]
    if only is None:
        return found
    chosen_ones = [place for place in found if place.topic == only]
    if not chosen_ones:
        raise error("unknown_topic", f"{directory} holds no topic {only!r}", "`quoth log ls DIR` lists them")
    return chosen_ones


def _name(folder: Path) -> str:
    """The topic's name as its settings file says, else as the folder's name does."""
    try:
        with (folder / topicfile.NAME).open("rb") as file:
            return topicfile.decode(file.read(topicfile.BYTES_MAX)).name
    except (OSError, QuothError):
        match = _FOLDER.fullmatch(folder.name)
        return unquote(match[1], errors="replace") if match else folder.name


_HEADINGS = (
    f"{'SEGMENT':<21}  {'FIRST':<27}  {'LAST':<27}  {'RECORDS':>10}  {'BYTES':>11}  STATE   DAMAGED  TOPIC"
)


def _print(printer: Printer, place: Place, found: Summary) -> None:
    state = "sealed" if found.sealed else "active"
    lost = sum(max(damage.end - damage.start, 0) for damage in found.damages)
    content = {
        "topic": place.topic,
        "segment": str(found.path),
        "floor": found.floor,
        "first": found.first,
        "first_time": moment_text(found.first),
        "last": found.last,
        "last_time": moment_text(found.last),
        "records": found.records,
        "bytes": found.bytes,
        "state": state,
        "unfinished_bytes": found.unfinished,
        "damages": [damage._asdict() | {"path": str(damage.path)} for damage in found.damages],
    }
    damaged = str(lost) if lost else "missing" if found.damages else "-"
    text = (
        f"{found.path.name:<21}  {moment_text(found.first):<27}  {moment_text(found.last):<27}  "
        f"{found.records:>10}  {found.bytes:>11}  {state}  {damaged:>7}  {printable(place.topic)}"
    )
    printer.answer(text, content, str(found.path))


def _report(found: Damage | Unfinished) -> Status:
    """Say on stderr what was stepped over."""
    if isinstance(found, Unfinished):
        say(
            f"quoth: {found.path}: {found.end - found.start} bytes at the end are no whole batch: "
            "it is being written, or a crash has torn it"
        )
        return Status.DONE
    where = f"bytes {found.start} to {found.end}: " if found.end > found.start else ""
    count = "an unknown number of records" if found.records < 0 else records_text(found.records)
    say(f"quoth: damaged: {found.path}: {where}{found.text}; {count} missing")
    return Status.FAILED


@contextmanager
def _readable(place: Place, directory: Path) -> Iterator[list[Status]]:
    """Go on with the next log if this one cannot be read; one of a broker's may be deleted at any moment."""
    trouble = [Status.DONE]
    try:
        yield trouble
    except QuothError as problem:
        say(f"quoth: damaged: {place.directory}: {problem.text}")
        trouble.append(Status.FAILED)
    except FileNotFoundError:
        if place.directory == directory:
            raise
