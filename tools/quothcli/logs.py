"""Logs as files: which of them lie in a directory, and what is said of what is wrong with them.

A directory may be that of an embedded log, a topic's folder, or a broker's whole data directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quothcli.exits import Status, say
from quothcli.output import ordinals_text, records_text
from quothd import catalog
from quothd.scrub import Pace
from quothlog import layout
from quothlog.inspection import Damage, Unfinished
from quothwire import pointer as pointers
from quothwire.errors import QuothError, error

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="An embedded log, a topic's folder or a broker's data directory.",
        show_default=False,
    ),
]
Only = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic of a data directory.")
]
Rate = Annotated[
    int | None, typer.Option("--rate", metavar="BYTES", min=1, help="Read at most so many bytes a second.")
]


class Place(NamedTuple):
    """Where a log lies, and the name of its topic.

    log_id: as the topic says, 0 for a log without a broker. problem: what is wrong with the topic's
    settings file, empty if nothing is.
    """

    topic: str
    directory: Path
    log_id: int = 0
    problem: str = ""


def places(directory: Path, only: str | None = None) -> list[Place]:
    """The logs in a directory. Raises FileNotFoundError, or `NotFound` if the topic is not among them."""
    topics = directory / "topics"
    below = topics if topics.is_dir() else directory
    found = [place for path in sorted(below.iterdir()) if path.is_dir() and (place := _topic(path))]
    if not found and below is directory:
        found = [_topic(directory.resolve()) or Place(directory.resolve().name, directory)]
    if only is None:
        return found
    chosen_ones = [place for place in found if place.topic == only]
    if not chosen_ones:
        raise error("unknown_topic", f"{directory} holds no topic {only!r}", "`quoth log ls DIR` lists them")
    return chosen_ones


def data_directory(directory: Path) -> Path | None:
    """The broker's directory that this one is, or is a topic's folder of; None for a log without a broker."""
    if (directory / "topics").is_dir():
        return directory
    folder = directory.resolve()
    if folder.name == "topics" and any(map(catalog.log_id_of, folder.iterdir())):
        return folder.parent
    return folder.parent.parent if catalog.log_id_of(folder) and folder.parent.name == "topics" else None


def pace_of(rate: int | None) -> Pace | None:
    """What keeps somebody to a rate, if one was said."""
    return Pace(rate) if rate else None


def bytes_of_segments(log: Path) -> int:
    """What its segments take, as far as they are there: they come and go beside a broker."""
    size = 0
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in log.iterdir():
            with suppress(OSError):
                size += path.stat().st_size if layout.floor_of(path.name) else 0
    return size


def report(found: Damage | Unfinished) -> Status:
    """Say on stderr what was stepped over."""
    if isinstance(found, Unfinished):
        say(
            f"quoth: {found.path}: {found.end - found.start} bytes at the end are no whole batch: "
            "it is being written, or a crash has torn it"
        )
        return Status.DONE
    where = f"bytes {found.start} to {found.end}: " if found.end > found.start else ""
    say(f"quoth: damaged: {found.path}: {where}{found.text}; {missing_text(found)}")
    return Status.FAILED


def missing_text(found: Damage) -> str:
    """Which records are missing, for people."""
    if not found.records:
        return "0 records missing"
    count = "an unknown number of records" if found.records < 0 else records_text(found.records)
    which = ordinals_text(found.ordinal, found.records)
    until = f" and before {found.next} ({pointers.to_text(found.next)})" if found.next else ""
    behind = f"behind {found.after} ({pointers.to_text(found.after)})" if found.after else "at the beginning"
    return f"{count} missing{which}, {behind}{until}"


@contextmanager
def readable(place: Place, directory: Path) -> Iterator[list[Status]]:
    """Say why this log cannot be read, and let the command go on with the next one; one of a broker's may be
    deleted at any moment. Yields a list of exit statuses."""
    trouble = [Status.DONE]
    try:
        yield trouble
    except QuothError as problem:
        say(f"quoth: {problem.code}: {place.directory}: {problem.text}")
        trouble.append(Status.FAILED)
    except FileNotFoundError:
        if place.directory == directory:
            raise


def _topic(path: Path) -> Place | None:
    found = catalog.folder_at(path)
    return Place(found.topic.name, path, found.topic.log_id, found.problem) if found else None
