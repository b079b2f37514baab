"""The inputs of a replay: the logs of an archive, or the rows of a table of Parquet files.

Each has an application, under which its chunks are published, and versions that stand for positions: by these
a run continues behind the last one, see the package.

    an archive's log    the application is its id, so the archive may be copied, moved, compacted and grow.
                        A version is an original pointer
    a table             the application is its path. A version is the number of a row, in its lowest bits a
                        checksum of the list of files, by which a changed table is noticed
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from quoth.merging.selection import Selection
from quoth.spark.archive import manifest as manifests
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.reading import logs_of
from quoth.spark.archive.store import read_manifest
from quoth.spark.archive.verification import named_files, require
from quoth.spark.atomic_files import local_path
from quoth.spark.replay.chunking import Chunk, ChunkLimits, FileGroup, Times, by_size, by_time
from quoth.spark.replay.parquet import (
    READERS,
    FileFooter,
    ParquetColumns,
    damage_in,
    micros,
    opened,
    read_column,
    read_footers,
)
from quothwire import pointer as pointers
from quothwire.errors import error
from quothwire.protocol.transaction import check_application
from quothwire.topic import check_topic

POINTER_HEADER = "quoth-pointer"
"""The header that holds a record's original pointer, in decimal digits."""
_CHECK_BITS = 20
_OTHERS = ("_delta_log", "_spark_metadata", "metadata/*.metadata.json")
"""The metadata of other formats, which lists their valid files. Without it a reader would read too many."""


class ReplayRequest(NamedTuple):
    """The selection and the target of a replay.

    topics: of an archive, names and patterns. to: a topic's name, or OLD=NEW. since, until: pointers, the one
    included and the other not. value and so on: the columns of a table; None for the default name if it
    exists, "" for none. name: of the application, instead of one that is derived from the input.
    """

    topics: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    value: str | None = None
    key: str | None = None
    headers: str | None = None
    time: str | None = None
    pointer: str | None = None
    name: str | None = None

    def application(self, *identity: object) -> str:
        """The name under which the chunks of an input are published."""
        digest = xxh3_64_hexdigest(repr(identity).encode())
        return check_application(f"{self.name or 'replay'}-{digest}")


@dataclass(frozen=True)
class ReplayStream:
    """Records of one origin for one topic.

    origin: a topic's name, or a path. log: the id of the archived log, 0 for a table. groups: in the order of
    their positions. after, until: the selected positions. check: a checksum in the lowest bits of versions;
    bits: their number.
    """

    origin: str
    log: int
    target: str
    application: str
    columns: ParquetColumns
    groups: tuple[FileGroup, ...]
    after: int
    until: int
    check: int = 0
    bits: int = 0

    def version(self, position: int) -> int:
        """The version of a chunk that ends at a position."""
        return position << self.bits | self.check

    def position(self, newest: int) -> int:
        """The position of the newest published version; 0 if none is published.

        Raises `Conflict` ``sequence_reused`` if the table has changed since.
        """
        if newest < 0:
            return 0
        if newest & ((1 << self.bits) - 1) != self.check:
            raise error(
                "sequence_reused",
                f"{self.origin} is not what it was: {newest >> self.bits:,} rows of it were replayed into "
                f"{self.target!r} before its files changed",
                "nothing more was replayed; replay what is new by itself, or all of it once more under "
                "another name: --application NAME",
            )
        return newest >> self.bits

    def place(self, position: int) -> str:
        """Format a position for the user: its time, or the number of the row."""
        return pointers.to_text(position) if self.log else f"row {position:,}"

    def chunks(self, limits: ChunkLimits, tick: int | None = None, began: int = 0) -> Iterator[Chunk]:
        """Divide the selected records behind a position into chunks.

        tick: microseconds; then each chunk is of one tick.
        """
        after = max(self.after, began)
        if tick is None:
            return by_size(self.groups, after, self.until, limits)
        return by_time(self.groups, after, self.until, limits, tick, _times_of(self.columns))


@dataclass(frozen=True)
class ReplayInput:
    """The logs of an archive, each in the order of its pointers, or the rows of a table."""

    root: Path
    request: ReplayRequest
    is_archive: bool

    def streams(self) -> list[ReplayStream]:
        """Read its present streams; those into one topic follow each other.

        Raises `Damaged` or OSError for files that are damaged, or differ from the manifest of an archive,
        `RequestError`, and `NotFound` ``unknown_topic`` for topics that an archive does not have.
        """
        if not self.is_archive:
            return [_table_stream(self.root, self.request)]
        logs = logs_of(read_manifest(self.root), Selection(self.request.topics or "*"))
        targets = _targets(self.request, list(dict.fromkeys(log.topic for log in logs)))
        return [_log_stream(self.root, self.request, log, targets[log.topic]) for log in logs]


def input_of(path: str | Path, request: ReplayRequest) -> ReplayInput:
    """Open an archive if the path has a manifest, else a table: a Parquet file, or a folder of them.

    Raises `RequestError` for a request that does not fit, FileNotFoundError.
    """
    root = local_path(path)
    is_archive = (root / manifests.NAME).exists()
    if is_archive:
        _check_for_archive(root, request)
    else:
        _check_for_table(root, request)
    return ReplayInput(root, request, is_archive)


def files_of(root: Path) -> list[Path]:
    """The Parquet files of a table, in the order of their names, but for names that begin with _ or a dot.

    Raises ``bad_request`` for a folder without any, or of another format.
    """
    if not root.is_dir():
        return [root]
    for other in _OTHERS:
        if any(root.glob(other)):
            raise error(
                "bad_request",
                f"{root} is a table whose files count only as {other.partition('/')[0]} says, which is not "
                "read here",
                "let Spark read it and write it as plain Parquet, or write it with format('quoth')",
            )
    found = sorted(
        path
        for path in root.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )
    if not found:
        raise error("bad_request", f"{root} has no Parquet files", "they end in .parquet")
    return found


# -- inside -------------------------------------------------------------------------------------------------

_ARCHIVED = ParquetColumns("value", "key", "headers", pointer="offset", axis="offset", time="offset")


def _check_for_archive(root: Path, request: ReplayRequest) -> None:
    for name in ("value", "key", "headers", "time", "pointer"):
        if getattr(request, name) is not None:
            raise error(
                "bad_request",
                f"{root} is an archive: its columns are known, and --{name}-column is for other tables",
            )
    Selection(request.topics or "*")


def _check_for_table(root: Path, request: ReplayRequest) -> None:
    root.stat()
    if request.topics:
        raise error("bad_request", f"{root} is no archive, so --topic chooses nothing", "leave it out")
    if len(request.to) != 1:
        raise error("bad_request", f"into which topic do the rows of {root} go?", "name one: --to TOPIC")
    check_topic(request.to[0])
    if (request.since, request.until) != (None, None) and not request.time:
        raise error("bad_request", f"{root}: which column has the time?", "--time-column NAME")


# -- archives -----------------------------------------------------------------------------------------------


def _targets(request: ReplayRequest, topics: list[str]) -> dict[str, str]:
    """The target of each topic."""
    targets = {topic: topic for topic in topics}
    for text in request.to:
        old, new = _renaming(text, topics)
        targets[old] = check_topic(new)
    twice = [topic for topic in topics if list(targets.values()).count(targets[topic]) > 1]
    if twice:
        raise error(
            "bad_request",
            f"{' and '.join(map(repr, twice))} would both go into {targets[twice[0]]!r}",
            "their records would not be in the order of their time: replay them one after the other",
        )
    return targets


def _renaming(text: str, topics: list[str]) -> tuple[str, str]:
    """Parse ``OLD=NEW``, or ``NEW`` if there is one topic."""
    for topic in sorted(topics, key=len, reverse=True):  # a name may have = in it
        if text.startswith(f"{topic}="):
            return topic, text[len(topic) + 1 :]
    if len(topics) == 1:
        return topics[0], text
    raise error(
        "bad_request",
        f"--to {text}: which of {', '.join(topics)}?"[:300],
        "write OLD=NEW, OLD being one of the topics that are replayed",
    )


def _log_stream(root: Path, request: ReplayRequest, log: ArchivedLog, target: str) -> ReplayStream:
    since = None if request.name else request.since
    after = max(0, (request.since or 0) - 1)
    until = log.until if request.until is None else min(log.until, max(0, request.until - 1))
    files = [one for one in named_files([log]) if one[1].last > after and one[1].first <= until]
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(partial(require, root), files))
    footers = read_footers([root / file.name for _, file in files], _ARCHIVED)
    groups = tuple(map(_by_pointer, (group for footer in footers for group in footer.groups)))
    for one, following in pairwise(groups):
        with damage_in(following.path):
            if following.low <= one.high:
                raise ValueError("its pointers do not lie behind those before")
    application = request.application("archive", f"{log.log:016x}", since)
    return ReplayStream(log.topic, log.log, target, application, _ARCHIVED, groups, after, until)


def _by_pointer(group: FileGroup) -> FileGroup:
    """Return a group whose positions are its pointers."""
    with damage_in(group.path):
        if group.earliest is None or group.latest is None:
            raise ValueError("its footer does not tell the pointers of its row groups")
    return group._replace(low=group.earliest, high=group.latest)


# -- tables -------------------------------------------------------------------------------------------------


def _table_stream(root: Path, request: ReplayRequest) -> ReplayStream:
    paths = files_of(root)
    columns = _columns(request, paths[0])
    footers = read_footers(paths, columns)
    kept = (columns.value, columns.key, columns.headers, columns.pointer)
    facts = [(Path(one.path).relative_to(root).as_posix(), one.size, one.rows) for one in footers]
    return ReplayStream(
        origin=str(root),
        log=0,
        target=request.to[0],
        application=request.application("table", str(root), kept, request.since, request.until),
        columns=columns,
        groups=tuple(_by_row(footers, columns)),
        after=0,
        until=sum(footer.rows for footer in footers),
        check=xxh3_64_intdigest(repr(facts).encode()) & ((1 << _CHECK_BITS) - 1),
        bits=_CHECK_BITS,
    )


def _columns(request: ReplayRequest, path: Path) -> ParquetColumns:
    """The columns that a request names, or the default ones if the first file has them."""
    with opened(str(path)) as file:
        there = file.schema_arrow.names

    def named(name: str | None, usual: str) -> str | None:
        return (usual if usual in there else None) if name is None else name or None

    return ParquetColumns(
        request.value or "value",
        named(request.key, "key"),
        named(request.headers, "headers"),
        request.pointer or None,
        None,
        request.time or None,
        request.since,
        request.until,
    )


def _by_row(footers: Iterable[FileFooter], columns: ParquetColumns) -> Iterator[FileGroup]:
    """Number the rows of all files from 1 on. Groups without records of the selected time are left out."""
    before = 0
    for footer in footers:
        for one in footer.groups:
            too_early = one.latest is not None and columns.since is not None and one.latest < columns.since
            too_late = (
                one.earliest is not None and columns.until is not None and one.earliest >= columns.until
            )
            if not (too_early or too_late):
                yield one._replace(low=before + one.low, high=before + one.high)
        before += footer.rows


# -- times --------------------------------------------------------------------------------------------------


def _times_of(columns: ParquetColumns) -> Times:
    """Make a function that reads the times of a row group's selected records, and refuses falling ones."""
    assert columns.time is not None
    name, latest = columns.time, -sys.maxsize

    def times_in(group: FileGroup) -> tuple[Any, Any]:
        nonlocal latest
        with opened(group.path) as file:
            times = micros(read_column(file, group, name), name, group.path)
        if times[0] < latest or bool(np.any(np.diff(times) < 0)):
            raise error(
                "bad_request",
                f"{group.path}: its rows are not in the order of column {name!r}",
                "a pace needs that order: sort the table, or leave --speed out",
            )
        latest = int(times[-1])
        if columns.axis is not None:
            return times, times
        begin = 0 if columns.since is None else int(np.searchsorted(times, columns.since))
        end = len(times) if columns.until is None else int(np.searchsorted(times, columns.until))
        return np.arange(group.low, group.high + 1)[begin:end], times[begin:end]

    return times_in
