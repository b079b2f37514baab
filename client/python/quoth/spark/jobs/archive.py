"""The jobs of an archive, whose folder the driver and all executors have, see `quoth.spark.archive`.

    quoth pipeline archive DIR TOPIC...      archives topics; the next run goes on where the manifest says
    quoth pipeline verify DIR [TOPIC...]     reads every file and compares it with the manifest
    quoth pipeline compact DIR [TOPIC...]    merges the small files of each day, with the same records

Files that are missing or damaged are reported, stay unchanged, and make the exit status 1.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from quoth.merging.selection import Selection
from quoth.spark.archive import manifest
from quoth.spark.archive.archiver import KEEP_REPLACED_S, ArchiveTally, Policy, TopicArchiver
from quoth.spark.archive.compaction import Compacted, compact
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.parquet import FILE_BYTES
from quoth.spark.archive.reading import logs_of
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.archive.verification import (
    FileFinding,
    Named,
    check_shared,
    contradictions,
    named_files,
    verified,
)
from quoth.spark.atomic_files import local_path
from quoth.spark.jobs.session import Job, JobBroker, JobSummary, shares
from quoth.spark.workers import SparkWorkers, Workers, perform
from quothwire.errors import error


def archiving(
    archive: str | Path,
    topics: str | Iterable[str],
    *,
    broker: JobBroker,
    policy: Policy = Policy(),  # noqa: B008
    follow: float | None = None,
) -> Job:
    """Prepare the archiving of topics: once, or for ever, each `follow` seconds.

    Raises `RequestError` for an archive that is not a path or has another version, `Damaged` for its
    manifest, OSError, and as `JobBroker.checked`. The job raises as `TopicArchiver.run`.
    """
    root = local_path(archive)
    with suppress(FileNotFoundError):
        read_manifest(root)
    selection = broker.checked(topics)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        with broker.awaited() as client:
            archiver = TopicArchiver(
                client, root, SparkWorkers(spark), selection, policy, broker.tell, key=broker.key
            )
            if follow is None:
                archiver.run()
            else:
                archiver.follow(follow)
        return archived(archiver.tally, root, time.monotonic() - began)

    return Job(run, "what was committed is archived: run it again to go on behind that")


def archived(tally: ArchiveTally, root: Path, seconds: float) -> JobSummary:
    """Summarize an archiving. It is good if no record was lost, and no file of earlier runs is missing."""
    rate = tally.records / seconds if seconds else 0.0
    topics = sorted(tally.topics)
    lines = [
        f"archived {', '.join(topics)}: {tally.records:,} records, {tally.bytes:,} bytes in "
        f"{tally.files:,} files, {seconds:.1f} s, {rate:,.0f} records a second"
    ]
    if tally.lost:
        lines.append(f"{tally.lost:,} records were gone before they could be archived")
    if tally.trimmed:
        lines.append(f"the topics let go of {tally.trimmed:,} records")
    content = {**vars(tally), "topics": topics, "records_per_s": round(rate, 1)}
    done = _summary(root, [*lines, *_unusable(tally.findings)], content, tally.findings, seconds)
    return done._replace(good=done.good and not tally.lost)


def compaction(
    archive: str | Path,
    topics: Sequence[str] = (),
    *,
    target_bytes: int = FILE_BYTES,
    keep_replaced: float = KEEP_REPLACED_S,
) -> Job:
    """Prepare the compaction of some topics of an archive, by default of all. See `compact`.

    Raises `RequestError` if there is no archive, or for a bad selection, `NotFound` ``unknown_topic`` for
    topics that it does not have, `Damaged`. The job raises as `compact`, and `Conflict` ``locked`` while
    another program works on the archive.
    """
    root, selection = _archive_at(archive, topics)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        with ArchiveStore(root) as store:
            done = compact(
                store,
                SparkWorkers(spark),
                topics=selection,
                target_bytes=target_bytes,
                keep_replaced=keep_replaced,
            )
        return compacted(done, root, time.monotonic() - began)

    return Job(run, "what was committed is merged, the rest is as it was: run it again to go on")


def compacted(done: Compacted, root: Path, seconds: float) -> JobSummary:
    """Summarize a compaction. It is good if no file is missing or damaged."""
    lines = [
        *(f"{one.kind}: {one.text}" for one in done.findings),
        f"merged {done.merged:,} files into {done.files:,}, {done.records:,} records, {done.bytes:,} bytes, "
        f"in {seconds:.1f} s; {done.removed_files:,} files removed",
        *_unusable(done.findings),
    ]
    return _summary(root, lines, vars(done), done.findings, seconds)


def verification(archive: str | Path, topics: Sequence[str] = ()) -> Job:
    """Prepare the verification of some topics of an archive, by default of all.

    It compares each file's presence, size, footer, page checksums, number of records, their order and their
    fingerprint with the manifest. Nothing is locked or changed, so other jobs may run meanwhile. Raises
    `RequestError` if there is no archive, or for a bad selection, `NotFound` ``unknown_topic`` for topics
    that it does not have, `Damaged` for its manifest.
    """
    root, selection = _archive_at(archive, topics)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        logs, findings = verify(root, SparkWorkers(spark), selection)
        return verdict(root, logs, findings, time.monotonic() - began)

    return Job(run, "nothing was changed: run it again")


def verify(root: Path, workers: Workers, selection: Selection) -> tuple[list[ArchivedLog], list[FileFinding]]:
    """Verify the files of some topics; returns their logs and the findings, in the order of the files.

    If a compaction has replaced unreadable files meanwhile, the logs are those of the new manifest, and its
    new files are verified, too. Raises ``bad_request`` if a worker has another folder.
    """
    logs = _selected(root, selection)
    outcomes: dict[Named, FileFinding | None] = {}
    while True:
        left = [one for one in named_files(logs) if one not in outcomes]
        parts = list(shares((one, one[1].bytes) for one in left))
        found = [one for part in perform(workers, partial(verified, str(root)), parts) for one in part]
        check_shared(root, found)
        by_name = {one.name: one for one in found}
        outcomes |= {one: by_name.get(one[1].name) for one in left}
        bad = [one for named in dict.fromkeys(named_files(logs)) if (one := outcomes[named]) is not None]
        there = _selected(root, selection) if bad else logs
        if {one.name for one in bad} <= {file.name for log in there for file in log.files}:
            return logs, [*bad, *(one for log in logs for one in contradictions(log))]
        logs = there


def verdict(
    root: Path, logs: Sequence[ArchivedLog], findings: Sequence[FileFinding], seconds: float
) -> JobSummary:
    """Summarize a verification. It is good if there are no findings."""
    lines = [f"{one.kind:<10}  {one.text}" for one in findings]
    content_of_logs = []
    for log in logs:
        names = {file.name for file in log.files}
        found = [one for one in findings if one.name in names]
        size = sum(file.bytes for file in log.files)
        name = log.topic if log.generation == 1 else f"{log.topic} (generation {log.generation})"
        lost = f"; {log.lost:,} records were lost before they could be archived" if log.lost else ""
        amounts = f"{len(log.files):,} files, {log.rows:,} records, {size:,} bytes"
        lines.append(f"{name}: {amounts}: {_counts(found)}{lost}")
        content_of_logs.append({
            "topic": log.topic, "log": f"{log.log:016x}", "generation": log.generation,
            "files": len(log.files), "records": log.rows, "bytes": size, "lost": log.lost,
            **_files(found), "whole": not found,
        })  # fmt: skip
    content = {
        "logs": content_of_logs,
        "files": sum(len(log.files) for log in logs),
        "records": sum(log.rows for log in logs),
        **_files(findings),
        "whole": not findings,
    }
    return _summary(root, lines, content, findings, seconds)


def _archive_at(archive: str | Path, topics: Sequence[str]) -> tuple[Path, Selection]:
    """The folder of an archive, and a selection of its topics, by default of all."""
    root, selection = local_path(archive), Selection(topics or "*")
    if not (root / manifest.NAME).is_file():
        raise error("bad_request", f"{root} holds no archive", "`quoth pipeline archive` makes one")
    _selected(root, selection)
    return root, selection


def _selected(root: Path, selection: Selection) -> list[ArchivedLog]:
    """The selected logs of an archive, none of an empty archive. Raises `NotFound`, `Damaged`."""
    there = read_manifest(root)
    return logs_of(there, selection) if there.logs or selection.names else []


def _summary(
    root: Path, lines: list[str], content: dict[str, Any], findings: Sequence[FileFinding], seconds: float
) -> JobSummary:
    found = [one._asdict() for one in findings]
    whole = {"archive": str(root), **content, "seconds": round(seconds, 3), "findings": found}
    return JobSummary(lines, whole, good=not findings)


def _unusable(findings: Sequence[FileFinding]) -> list[str]:
    """The last line of a job with findings, which it has listed before; empty without findings."""
    if not findings:
        return []
    rows = sum(one.rows for one in findings)
    return [
        f"{len(findings):,} files with {rows:,} records cannot be used and were left as they are: "
        "put copies back; `quoth pipeline verify` reads all files"
    ]


def _files(findings: Sequence[FileFinding]) -> dict[str, int]:
    """The number of files of each kind of finding."""
    counts = Counter(one.kind for one in findings)
    return {f"{kind}_files": counts[kind] for kind in ("missing", "damaged", "unreadable")}


def _counts(findings: Sequence[FileFinding]) -> str:
    """The number of findings of each kind, and of their records."""
    counts = Counter(one.kind for one in findings)
    kinds = ("missing", "damaged", "unreadable", "manifest")
    found = [f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]]
    return ", ".join([*found, f"{sum(one.rows for one in findings):,} records in them"]) if found else "whole"
