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
from itertools import accumulate, pairwise
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
from quoth.spark.replay.chunking import Chunk, ChunkLimits, FileGroup, by_size, by_time
from quoth.spark.replay.parquet import (
    READERS,
    FileFooter,
    ParquetColumns,
    as_micros,
    damage_in,
    micros,
    opened,
    read_column,
    read_footers,
    schema_of,
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
        return by_time(self.groups, after, self.until, limits, tick, _Times(self.columns))


class ArchiveInput:
    """Logs of an archive, each in the order of its pointers, the generations of a topic one by one.

    Raises `RequestError` for a request that is not for an archive.
    """

    def __init__(self, root: Path, request: ReplayRequest) -> None:
        self._root = root
        self._request = request
        for name in ("value", "key", "headers", "time", "pointer"):
            if getattr(request, name) is not None:
                raise error(
                    "bad_request",
                    f"{root} is an archive: its columns are known, and --{name}-column is for other tables",
                )
        self._selection = Selection(request.topics or "*")

    def streams(self) -> list[ReplayStream]:
        """Read its present streams; those into one topic follow each other.

        Raises `Damaged` or OSError for files that differ from the manifest, and as `logs_of`.
        """
        logs = logs_of(read_manifest(self._root), self._selection)
        targets = self._targets(list(dict.fromkeys(log.topic for log in logs)))
        return [self._stream(log, targets[log.topic]) for log in logs]

    def _targets(self, topics: list[str]) -> dict[str, str]:
        """The target of each topic."""
        targets = {topic: topic for topic in topics}
        for text in self._request.to:
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

    def _stream(self, log: ArchivedLog, target: str) -> ReplayStream:
        request = self._request
        since = None if request.name else request.since
        after = max(0, (request.since or 0) - 1)
        until = log.until if request.until is None else min(log.until, max(0, request.until - 1))
        files = [one for one in named_files([log]) if one[1].last > after and one[1].first <= until]
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(partial(require, self._root), files))
        paths = [self._root / file.name for _, file in files]
        footers = read_footers(paths, _ARCHIVED, _ARCHIVED.axis)
        groups = tuple(group for footer in footers for group in _by_pointer(footer))
        for one, following in pairwise(groups):
            with damage_in(following.path):
                if following.low <= one.high:
                    raise ValueError("its pointers do not lie behind those before")
        application = request.application("archive", f"{log.log:016x}", since)
        return ReplayStream(log.topic, log.log, target, application, _ARCHIVED, groups, after, until)


class TableInput:
    """The rows of a Parquet file, or of a folder of them: file by file in the order of their names.

    Raises `RequestError` for a request that is not for a table, FileNotFoundError.
    """

    def __init__(self, root: Path, request: ReplayRequest) -> None:
        self._root = root
        self._request = request
        root.stat()
        if request.topics:
            raise error("bad_request", f"{root} is no archive, so --topic chooses nothing", "leave it out")
        if len(request.to) != 1:
            raise error("bad_request", f"into which topic do the rows of {root} go?", "name one: --to TOPIC")
        check_topic(request.to[0])
        if (request.since, request.until) != (None, None) and not request.time:
            raise error("bad_request", f"{root}: which column has the time?", "--time-column NAME")

    def streams(self) -> list[ReplayStream]:
        """Read its one stream. Raises OSError, or `Damaged` or `RequestError`, which name the file."""
        request, paths = self._request, files_of(self._root)
        columns = self._columns(paths[0])
        footers = read_footers(paths, columns, columns.time)
        kept = (columns.value, columns.key, columns.headers, columns.pointer)
        identity = ("table", str(self._root), kept, request.since, request.until)
        return [
            ReplayStream(
                origin=str(self._root),
                log=0,
                target=request.to[0],
                application=request.application(*identity),
                columns=columns,
                groups=tuple(_by_row(footers, columns)),
                after=0,
                until=sum(footer.rows for footer in footers),
                check=_check(footers, self._root),
                bits=_CHECK_BITS,
            )
        ]

    def _columns(self, path: Path) -> ParquetColumns:
        """The columns that the request names, or the default ones if the first file has them."""
        request, there = self._request, schema_of(path).names

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


ReplayInput = ArchiveInput | TableInput


def input_of(path: str | Path, request: ReplayRequest) -> ReplayInput:
    """Open an archive if the path has a manifest, else a table. Raises as these do."""
    root = local_path(path)
    return ArchiveInput(root, request) if (root / manifests.NAME).exists() else TableInput(root, request)


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


class _Times:
    """Reads the times of a row group's selected records; raises ``bad_request`` if times fall."""

    def __init__(self, columns: ParquetColumns) -> None:
        assert columns.time is not None
        self._columns = columns
        self._time = columns.time
        self._latest = -sys.maxsize

    def __call__(self, group: FileGroup) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        times = self._read(group)
        if len(times) and (times[0] < self._latest or bool(np.any(np.diff(times) < 0))):
            raise error(
                "bad_request",
                f"{group.path}: its rows are not in the order of column {self._time!r}",
                "a pace needs that order: sort the table, or leave --speed out",
            )
        self._latest = int(times[-1]) if len(times) else self._latest
        if self._columns.axis is not None:
            return times, times
        since, until = self._columns.since, self._columns.until
        begin = 0 if since is None else int(np.searchsorted(times, since))
        end = len(times) if until is None else int(np.searchsorted(times, until))
        return np.arange(group.low, group.high + 1)[begin:end], times[begin:end]

    def _read(self, group: FileGroup) -> np.ndarray[Any, Any]:
        with opened(group.path) as file:
            column = read_column(file, group.path, group.number, group.rows, self._time)
        return micros(column, self._time, group.path)


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


def _by_pointer(footer: FileFooter) -> Iterator[FileGroup]:
    with damage_in(footer.path):
        for one in footer.groups:
            if one.lowest is None or one.highest is None:
                raise ValueError("its footer does not tell the pointers of its row groups")
            yield FileGroup(footer.path, one.number, one.rows, one.bytes, one.lowest, one.highest)


def _by_row(footers: Iterable[FileFooter], columns: ParquetColumns) -> Iterator[FileGroup]:
    """The groups that may have records of the selected time. Rows are numbered from 1 on."""
    groups = [(footer.path, one) for footer in footers for one in footer.groups]
    ends = list(accumulate(one.rows for _, one in groups))
    for (path, one), end in zip(groups, ends, strict=True):
        first, last = as_micros(one.lowest), as_micros(one.highest)
        too_early = columns.since is not None and last is not None and last < columns.since
        too_late = columns.until is not None and first is not None and first >= columns.until
        if not (too_early or too_late):
            yield FileGroup(path, one.number, one.rows, one.bytes, end - one.rows + 1, end)


def _check(footers: list[FileFooter], root: Path) -> int:
    facts = [(Path(footer.path).relative_to(root).as_posix(), footer.size, footer.rows) for footer in footers]
    return xxh3_64_intdigest(repr(facts).encode()) & ((1 << _CHECK_BITS) - 1)
