"""Audits logs of any size: verifies every segment file, without a broker.

    quoth pipeline audit DIR...

A directory is that of an embedded log, a topic's folder or a broker's data directory, on a file system that
all executors have. Nothing is locked or changed, so a broker may write there: an unfinished batch is no
damage, nor are segments that retention removes meanwhile.

Each log is listed once. Tasks verify segments as `quoth log verify` does, with the whole list at hand, so
that the verdict does not depend on the division among tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, functions

from quoth.spark.atomic_files import refuse_existing
from quoth.spark.jobs import session
from quoth.spark.jobs.session import JobSummary, shares
from quothlog import file_format
from quothlog.datadir import topic_file
from quothlog.datadir.discovery import FoundLog, places
from quothlog.recovery import snapshot, verify
from quothlog.recovery.snapshot import Listing
from quothlog.recovery.verify import Damage
from quothwire.errors import QuothError

FOUND_MAX = 1_000
"""Findings that a summary lists; `Audit.findings` has all of them."""


class AuditFinding(NamedTuple):
    """A finding in a log.

    kind: one of `verify.Wrong`; ``unreadable``: a log, or what is left of it from somewhere on; ``settings``:
    a topic's settings file; or a note: ``index``: a sealed segment without an index that agrees with it;
    ``unfinished``: the end of the last segment, which is being written or was torn by a crash; ``set_aside``:
    bytes that a start or a repair has kept; ``foreign``: a file of something else.

    damage: False for a note. start, end: offsets in the file, both 0 if it concerns the whole file. after,
    next: the pointers between which records are missing. ordinal: of the first missing record; records: the
    number of missing ones; each -1 if unknown.
    """

    topic: str
    directory: str
    kind: str
    damage: bool
    path: str
    start: int = 0
    end: int = 0
    after: int = 0
    next: int = 0
    ordinal: int = -1
    records: int = 0
    text: str = ""


_FINDING = session.schema_of(AuditFinding)
_SEGMENT = (
    "topic string, directory string, path string, log string, floor long, first long, last long, "
    "ordinal long, batches long, records long, bytes long, sealed boolean, indexed boolean"
)
_AMOUNTS = ("segments", "batches", "records", "bytes")
_TOTALS = (*_AMOUNTS, "damaged", "missing")


class AuditedLog(NamedTuple):
    """A log with the list of its segments, the bytes of each, and the findings outside of segments."""

    place: FoundLog
    listed: Listing
    sizes: list[int]
    found: list[AuditFinding]


@dataclass(frozen=True)
class Audit:
    """The result of an audit: a row for each segment, and one for each finding."""

    logs: list[AuditedLog]
    segments: DataFrame
    findings: DataFrame

    def summary(self) -> JobSummary:
        """Summarize the audit. It is good if nothing is damaged."""
        sums = [functions.sum(name).alias(name) for name in _AMOUNTS[1:]]
        amounts = _by_directory(self.segments, functions.count("*").alias("segments"), *sums)
        missing = functions.sum(functions.greatest("records", functions.lit(0))).alias("missing")
        wrong = _by_directory(self.findings, functions.count_if("damage").alias("damaged"), missing)
        logs = []
        for log in self.logs:
            directory = str(log.place.directory)
            one: dict[str, Any] = {
                "topic": log.place.topic,
                "directory": directory,
                **dict.fromkeys(_TOTALS, 0),
            }
            logs.append(one | amounts.get(directory, {}) | wrong.get(directory, {}))
        totals = {name: sum(one[name] for one in logs) for name in _TOTALS}
        kinds = {row["kind"]: row["count"] for row in self.findings.groupBy("kind").count().collect()}
        first = self.findings.orderBy("directory", "path", "start").limit(FOUND_MAX)
        found = [AuditFinding(*row) for row in first.collect()]
        lines = list(map(_line, found))
        if (more := sum(kinds.values()) - len(found)) > 0:
            lines.append(f"... and {more:,} more: --out DIR keeps all of them")
        lines += [f"{one['topic']}: {_amounts(one)}" for one in logs]
        if len(logs) > 1:
            lines.append(f"{len(logs):,} logs: {_amounts(totals)}")
        content = {
            "whole": not totals["damaged"],
            **totals,
            "kinds": dict(sorted(kinds.items())),
            "logs": logs,
            "findings": [one._asdict() for one in found],
        }
        return JobSummary(lines, content, not totals["damaged"])


def logs_in(directories: Iterable[str | Path], topic: str | None = None) -> list[AuditedLog]:
    """List all logs in some directories. topic: only this one.

    Raises FileNotFoundError for a directory that is not there or holds no log, `NotFound` if none holds the
    topic.
    """
    named = [Path(directory).resolve() for directory in directories]
    found: dict[Path, FoundLog] = {}
    missing: QuothError | None = None
    for directory in named:
        try:
            found |= {place.directory: place for place in places(directory, topic)}
        except QuothError as problem:
            missing = problem
    if not found and missing is not None:
        raise missing
    return [_look(place, named=place.directory in named) for place in found.values()]


def audit(spark: SparkSession, logs: list[AuditedLog]) -> Audit:
    """Verify all segments of some logs."""
    files = [((number, row), size) for number, log in enumerate(logs) for row, size in enumerate(log.sizes)]
    tasks = list(shares(files))
    listed = spark.sparkContext.broadcast([(log.place.topic, log.listed) for log in logs])
    rows = spark.sparkContext.parallelize(tasks, max(1, len(tasks))).flatMap(
        lambda share: _inspected(share, listed.value)
    )
    schema = f"{_SEGMENT}, found array<struct<{_FINDING}>>"
    segments = spark.createDataFrame(rows, schema, verifySchema=False).persist()
    beside = spark.createDataFrame([one for log in logs for one in log.found], _FINDING)
    within = segments.select(functions.inline("found"))
    return Audit(logs, segments.where("path is not null").drop("found"), within.union(beside))


def job(
    directories: Iterable[str | Path], *, topic: str | None = None, out: str | None = None
) -> session.Job:
    """Prepare the audit of the logs in some directories. out: the folder for segments and findings.

    Raises FileExistsError, and as `logs_in`.
    """
    refuse_existing(out)
    logs = logs_in(directories, topic)

    def run(spark: SparkSession) -> JobSummary:
        done = audit(spark, logs)
        if out is not None:
            done.segments.write.parquet(f"{out}/segments")
            done.findings.write.parquet(f"{out}/findings")
        return done.summary()

    return session.looking(run, out)


# -- in the driver ------------------------------------------------------------------------------------------


def _look(place: FoundLog, *, named: bool) -> AuditedLog:
    """List a directory. named: its log must exist; a broker may delete others at any moment.

    Raises FileNotFoundError.
    """
    found = [_beside(place, topic_file.NAME, "settings", place.problem, damage=True)] if place.problem else []
    listed = Listing(place.directory, place.log_id, ())
    try:
        listed = snapshot.listing(place.directory, place.log_id)
    except QuothError as problem:
        found.append(_beside(place, "", "unreadable", problem.text, damage=True))
    except FileNotFoundError:
        if named:
            raise
    with suppress(FileNotFoundError):
        for name in snapshot.false_segments_in(place.directory, place.log_id):
            text = "no segment of this log: the next opening sets it aside"
            found.append(_beside(place, name, "foreign", text))
    sizes: dict[int, int] = {}
    with suppress(FileNotFoundError), os.scandir(place.directory) as entries:
        for entry in entries:
            floor = file_format.floor_of(entry.name)
            with suppress(FileNotFoundError):  # removed meanwhile
                if floor is not None and entry.is_file(follow_symlinks=False):
                    sizes[floor] = entry.stat().st_size
                else:
                    found += _other_file(place, entry)
    return AuditedLog(place, listed, [sizes.get(floor, 0) for floor in listed.floors], found)


def _other_file(place: FoundLog, entry: os.DirEntry[str]) -> Iterator[AuditFinding]:
    """Findings for a file that is not a segment."""
    if file_format.is_quarantined(entry.name):
        size = entry.stat(follow_symlinks=False).st_size
        yield _beside(place, entry.name, "set_aside", f"{size:,} bytes: delete that if it is not needed")
    elif file_format.floor_of(entry.name) is not None:
        yield _beside(place, entry.name, "foreign", "a segment has to be a file")
    elif not file_format.is_ours(entry.name) and (entry.name != topic_file.NAME or not place.log_id):
        yield _beside(place, entry.name, "foreign", "no file of a log")


def _beside(place: FoundLog, name: str, kind: str, text: str, *, damage: bool = False) -> AuditFinding:
    """A finding for a whole file, or for the directory."""
    directory = str(place.directory)
    path = os.path.join(directory, name) if name else directory
    return AuditFinding(place.topic, directory, kind, damage, path, text=text)


# -- in the executors ---------------------------------------------------------------------------------------


def _inspected(share: list[tuple[int, int]], logs: list[tuple[str, Listing]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each segment of a task, and one without a path for each log that failed.

    share: numbers of logs and rows of their lists.
    """
    for number, rows in groupby(share, itemgetter(0)):
        topic, listed = logs[number]
        directory, last = str(listed.directory), 0
        numbers = [row for _, row in rows]
        try:
            for one in verify.summaries_in(listed, range(numbers[0], numbers[-1] + 1)):
                yield _row(topic, directory, one)
                last = one.last
        except (QuothError, OSError) as problem:
            text = f"{problem}; what lies behind was not looked at"
            where = topic, directory, "unreadable", True, directory
            finding = AuditFinding(*where, after=last, records=-1, text=text)
            yield (topic, directory, *[None] * 11, [finding])


def _row(topic: str, directory: str, one: verify.Summary) -> tuple[Any, ...]:
    found = [_of_damage(topic, directory, damage) for damage in one.damages]
    if one.unfinished:
        text = "no whole batch: it is being written, or a crash has torn it"
        span = {"start": one.bytes - one.unfinished, "end": one.bytes, "after": one.last}
        found.append(AuditFinding(topic, directory, "unfinished", False, str(one.path), **span, text=text))
    if one.sealed and not one.indexed:
        path = one.path.with_suffix(file_format.INDEX_SUFFIX)
        text = "no index that agrees: readers do without, `quoth log repair` makes it anew"
        found.append(AuditFinding(topic, directory, "index", False, str(path), text=text))
    return (
        topic, directory, str(one.path), f"{one.log_id:016x}", one.floor, one.first, one.last,
        one.ordinal, one.batches, one.records, one.bytes, one.sealed, one.indexed, found,
    )  # fmt: skip


def _of_damage(topic: str, directory: str, damage: Damage) -> AuditFinding:
    text = f"{damage.text}, for good" if damage.closed else damage.text
    is_damage = not damage.closed and not damage.is_derived
    return AuditFinding(
        topic, directory, damage.kind.value, is_damage, str(damage.path), damage.start, damage.end,
        damage.after, damage.next, damage.ordinal, damage.records, text,
    )  # fmt: skip


# -- the summary --------------------------------------------------------------------------------------------


def _by_directory(frame: DataFrame, *columns: Column) -> dict[str, dict[str, Any]]:
    """Aggregate rows by their directory."""
    rows = frame.groupBy("directory").agg(*columns).collect()
    return {row["directory"]: row.asDict() for row in rows}


def _amounts(one: dict[str, Any]) -> str:
    amounts = ", ".join(f"{one[name]:,} {name}" for name in _AMOUNTS)
    missing = f", {one['missing']:,} records missing" if one["missing"] else ""
    return (
        f"{amounts}: {one['damaged']:,} damaged{missing}" if one["damaged"] else f"{amounts}: whole{missing}"
    )


def _line(one: AuditFinding) -> str:
    """Format a finding for the user."""
    where = f"bytes {one.start} to {one.end}: " if one.end > one.start else ""
    lost = ""
    if one.records:
        count = "an unknown number of records" if one.records < 0 else f"{one.records:,} records"
        which = f", from ordinal {one.ordinal} on" if one.ordinal >= 0 else ""
        lost = f"; {count} missing{which}"
    verdict = "damage" if one.damage else "note"
    return f"{verdict:<6}  {one.kind:<10}  {one.path}: {where}{one.text}{lost}"
