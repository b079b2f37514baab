"""Options and reports of the commands that work on the files of logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quothcli.cli.command import SharedOptions, argument, option
from quothcli.cli.exit_status import CommandStatus, read_or_not, say
from quothcli.cli.quantities import size_option
from quothcli.cli.session import Session, session_of
from quothcli.printing.output import Printer
from quothcli.printing.text import ordinals_text, records_text
from quothwire import pointer as pointers
from quothwire.errors import QuothError

if TYPE_CHECKING:
    from quothd.service.scrub_process import Throttle
    from quothlog.datadir.discovery import FoundLog
    from quothlog.recovery.verify import Damage, Unfinished


Directory = Annotated[
    Path, argument("DIR", "An embedded log, a topic's folder or a broker's data directory.")
]
Only = Annotated[str | None, option("--topic TOPIC", "Only this topic of a data directory.")]
Rate = Annotated[int | None, size_option("--rate", "Read at most so much a second: 10MB, 512KiB.")]


Printing = Annotated[Session, SharedOptions({}, session_of)]
"""The session of a command whose --format is that of files: `quoth --format json log ...` prints JSON."""

REBUILT = "an opening after a crash rebuilds it, or `quoth log repair`"


def limit_of(rate: int | None) -> Throttle | None:
    """Return a function that waits to keep a rate, None without a rate."""
    from quothd.service.scrub_process import Throttle

    return Throttle(rate) if rate else None


class Findings:
    """Reports on stderr what is wrong with logs. status: the exit status, which is failed after that."""

    def __init__(self) -> None:
        self.status = CommandStatus.DONE

    def fail(self, text: str) -> None:
        """Report something that fails the command."""
        say(f"quoth: {text}")
        self.status = CommandStatus.FAILED

    def add(self, found: Damage | Unfinished) -> None:
        """Report what was skipped. What is unfinished, or derived and can be rebuilt, is no failure."""
        from quothlog.recovery.verify import Unfinished

        if isinstance(found, Unfinished):
            say(
                f"quoth: {found.path}: {found.end - found.start} bytes at the end are no whole batch: "
                "it is being written, or a crash has torn it"
            )
        elif found.is_derived:
            say(f"quoth: derived: {found.path}: {found.text}, no record is missing; {REBUILT}")
        else:
            where = f"bytes {found.start} to {found.end}: " if found.end > found.start else ""
            self.fail(f"damaged: {found.path}: {where}{found.text}; {missing_text(found)}")

    @contextmanager
    def of(self, place: FoundLog, directory: Path) -> Iterator[None]:
        """Report an error of one log, and go on with the next one.

        A log of a broker that is deleted meanwhile is no error.
        """
        try:
            yield
        except QuothError as problem:
            self.fail(f"{problem.code}: {place.directory}: {problem.text}")
        except FileNotFoundError:
            if place.directory == directory:
                raise


def damage_objects(damages: Iterable[Damage]) -> list[dict[str, Any]]:
    """Make the objects of damages."""
    return [damage._asdict() | {"path": str(damage.path)} for damage in damages]


def missing_text(found: Damage) -> str:
    """Describe the missing records for people."""
    if not found.records:
        return "0 records missing"
    count = "an unknown number of records" if found.records < 0 else records_text(found.records)
    which = ordinals_text(found.ordinal, found.records)
    until = f" and before {found.next} ({pointers.to_text(found.next)})" if found.next else ""
    behind = f"behind {found.after} ({pointers.to_text(found.after)})" if found.after else "at the beginning"
    return f"{count} missing{which}, {behind}{until}"


def print_done(printer: Printer, text: str, content: Mapping[str, Any], raw: str) -> None:
    """Print what was done, and go on if the reader of the output has ended."""
    with read_or_not():
        printer.answer(text, content, raw)
