"""The port to what is imported: logs of another program, each a sequence of values with their pointers.

A source is read as often as an import is run again, so two readings of the same files yield the same records
in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote_from_bytes

from xxhash import xxh3_64

from quothwire.batch import BATCH_BYTES_MAX

VALUE_BYTES_MAX = BATCH_BYTES_MAX - 1024
"""The largest value that can be imported: a batch holds it beside its header."""

_NAMES_MAX = 5

Advance = Callable[[int], None]
"""Called with the bytes of the source that were read since the last call."""


class ImportedRecord(NamedTuple):
    """A record of a source. file, offset: the place of its first byte.

    pointer: that of the source, which may be any integer. address: that in a log of slabs, None in another
    source. Either all records of a source have one, or none has.
    """

    pointer: int
    value: bytes
    file: Path
    offset: int
    address: int | None = None


class SourceFile(NamedTuple):
    """A file as it was listed: its size, and the time of its last change in nanoseconds."""

    path: Path
    bytes: int
    changed_ns: int

    @classmethod
    def at(cls, path: Path) -> SourceFile:
        """Describe the file of a path as it is now. Raises OSError."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """A fact about a source that a person should know.

    text: begins with the path, for a terminal. is_damage: records were left out, or may have been.
    """

    text: str
    is_damage: bool = False


Report = Callable[[ImportFinding], None]
"""Called with each finding, in the order of the files."""


class LogSource(Protocol):
    """The source of one log."""

    @property
    def topic(self) -> str:
        """The name of its topic in the result, empty for a log without a broker."""

    @property
    def original(self) -> str:
        """The name that the topic has in the source, percent-encoded; empty if it keeps its name."""

    @property
    def files(self) -> Sequence[SourceFile]:
        """Its files that are read, as they were listed."""

    def records(self, advance: Advance, report: Report) -> Iterator[ImportedRecord]:
        """Yield its records in the order that they get.

        Raises `RequestError` ``too_large`` above `VALUE_BYTES_MAX`, or OSError.
        """


@dataclass(frozen=True)
class ImportSource:
    """All that one import takes in. findings: those of the listing.

    has_topics: the result is a data directory with a topic for each log; else it is the one log.
    """

    path: Path
    format: str
    has_topics: bool
    logs: Sequence[LogSource]
    findings: Sequence[ImportFinding] = ()


def bytes_of(log: LogSource) -> int:
    """Return the number of bytes that reading a log advances by."""
    return sum(file.bytes for file in log.files)


def fingerprint(log: LogSource) -> str:
    """Return a text that is another one as soon as a file of a log has changed.

    The directory of the source is no part of it, which may be given in several ways.
    """
    found = xxh3_64()
    for file in log.files:
        found.update(f"{quoted_path(Path(file.path.name))} {file.bytes} {file.changed_ns}\n".encode())
    return found.hexdigest()


def fingerprint_of_all(logs: Sequence[LogSource]) -> str:
    """Return a text that is another one as soon as a log comes, goes, or has another fingerprint."""
    found = xxh3_64()
    for log in logs:
        found.update(f"{fingerprint(log)} {log.topic}\n".encode())
    return found.hexdigest()


def quoted_path(path: Path) -> str:
    """Return a path as ASCII: its bytes may be no text."""
    return quote_from_bytes(bytes(path))


def shown_path(path: Path) -> str:
    """Return a path for people."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def not_imported(directory: Path, names: Iterable[str], reason: str) -> list[ImportFinding]:
    """Make the finding of files that are not imported; none without names."""
    ordered = sorted(names)
    if not ordered:
        return []
    listed = ", ".join(shown_path(Path(name)) for name in ordered[:_NAMES_MAX])
    more = f" and {len(ordered) - _NAMES_MAX} more" if len(ordered) > _NAMES_MAX else ""
    return [ImportFinding(f"{shown_path(directory)}: not imported, since {reason}: {listed}{more}")]


def counted(count: int, one: str, several: str = "") -> str:
    """Format a number of things. several: the plural, unless that adds an s."""
    return f"1 {one}" if count == 1 else f"{count} {several or f'{one}s'}"
