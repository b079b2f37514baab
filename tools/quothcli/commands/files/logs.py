"""Logs as files: how commands are told which, and what they say of what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli.exit_status import Status, say
from quothcli.cli.quantities import size
from quothcli.printing.output import ordinals_text, records_text
from quothwire import pointer as pointers
from quothwire.errors import QuothError

if TYPE_CHECKING:
    from quothd.service.scrub_process import Throttle
    from quothlog.datadir.discovery import FoundLog
    from quothlog.recovery.verify import Damage, Unfinished


Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="An embedded log, a topic's folder or a broker's data directory.",
    ),
]
Only = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic of a data directory.")
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", metavar="SIZE", parser=size("--rate"), help="Read at most so much a second: 10MB, 512KiB."
    ),
]


REBUILT = "an opening after a crash makes it anew, or `quoth log repair`"


def pace_of(rate: int | None) -> Throttle | None:
    """What keeps somebody to a rate, if one was said."""
    from quothd.service.scrub_process import Throttle

    return Throttle(rate) if rate else None


def report(found: Damage | Unfinished) -> Status:
    """Say on stderr what was stepped over."""
    from quothlog.recovery.verify import Unfinished

    if isinstance(found, Unfinished):
        say(
            f"quoth: {found.path}: {found.end - found.start} bytes at the end are no whole batch: "
            "it is being written, or a crash has torn it"
        )
        return Status.DONE
    if found.is_derived:
        say(f"quoth: derived: {found.path}: {found.text}, no record is missing; {REBUILT}")
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
def readable(place: FoundLog, directory: Path) -> Iterator[list[Status]]:
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
