"""Verifies an archive: reads every file that the manifest names, in parallel, and compares it with the
manifest.

    quoth pipeline verify DIR [TOPIC...]

DIR is an archive's folder, which the driver and all executors have. It verifies the presence of each file,
its size, its footer, the checksums of all pages, the number of records, their order and their fingerprint.
Nothing is locked or changed, so an archiving or a compaction may run meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from quoth.merging.selection import Selection
from quoth.spark.archive import manifest
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.reading import logs_of
from quoth.spark.archive.store import read_manifest
from quoth.spark.archive.verification import (
    FileFinding,
    Named,
    check_shared,
    contradictions,
    named_files,
    verified,
)
from quoth.spark.atomic_files import local_path
from quoth.spark.jobs import session
from quoth.spark.jobs.runs import shares
from quoth.spark.jobs.session import JobSummary, printable
from quoth.spark.workers import SparkWorkers, Workers, perform
from quothwire.errors import error


def job(archive: str | Path, topics: Sequence[str] = ()) -> session.Job:
    """Prepare the verification of some topics of an archive, by default of all.

    Raises `RequestError` if there is no archive, or for a bad selection, `NotFound` ``unknown_topic`` for
    topics that it does not have, `Damaged` for its manifest.
    """
    root, selection = archive_at(archive, topics)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        logs, findings = verify(root, SparkWorkers(spark), selection)
        return summary_of(root, logs, findings, time.monotonic() - began)

    return session.Job(run, "nothing was changed: run it again")


def archive_at(archive: str | Path, topics: Sequence[str]) -> tuple[Path, Selection]:
    """The folder of an archive, and a selection of its topics, by default of all. Raises as `job`."""
    root, selection = local_path(archive), Selection(topics or "*")
    if not (root / manifest.NAME).is_file():
        raise error("bad_request", f"{root} holds no archive", "`quoth pipeline archive` makes one")
    selected(root, selection)
    return root, selection


def selected(root: Path, selection: Selection) -> list[ArchivedLog]:
    """The selected logs of an archive, none of an empty archive. Raises `NotFound`, `Damaged`."""
    there = read_manifest(root)
    return logs_of(there, selection) if there.logs or selection.names else []


def verify(root: Path, workers: Workers, selection: Selection) -> tuple[list[ArchivedLog], list[FileFinding]]:
    """Verify the files of some topics; returns their logs and the findings, in the order of the files.

    If a compaction has replaced unreadable files meanwhile, the logs are those of the new manifest, and its
    new files are verified, too. Raises ``bad_request`` if a worker has another folder.
    """
    logs = selected(root, selection)
    outcomes: dict[Named, FileFinding | None] = {}
    while True:
        left = [[one for one in named_files([log]) if one not in outcomes] for log in logs]
        found = {one.name: one for one in _findings(root, workers, left)}
        outcomes |= {one: found.get(one[1].name) for files in left for one in files}
        bad = [one for named in dict.fromkeys(named_files(logs)) if (one := outcomes[named]) is not None]
        there = selected(root, selection) if bad else logs
        if {one.name for one in bad} <= {file.name for log in there for file in log.files}:
            return logs, [*bad, *(one for log in logs for one in contradictions(log))]
        logs = there


def _findings(root: Path, workers: Workers, files: Sequence[Sequence[Named]]) -> list[FileFinding]:
    """Read files, listed log by log, and return what is wrong with them."""
    parts = [
        [one for run in share for one in files[run.log][run.start : run.stop]]
        for share in shares([[file.bytes for _, file in several] for several in files])
    ]
    found = [one for part in perform(workers, partial(verified, str(root)), parts) for one in part]
    check_shared(root, found)
    return found


def summary_of(
    root: Path, logs: Sequence[ArchivedLog], findings: Sequence[FileFinding], seconds: float
) -> JobSummary:
    """Summarize a verification. It is good if there are no findings."""
    lines = [f"{one.kind:<10}  {printable(one.text)}" for one in findings]
    content_of_logs = []
    for log in logs:
        names = {file.name for file in log.files}
        found = [one for one in findings if one.name in names]
        size = sum(file.bytes for file in log.files)
        name = log.topic if log.generation == 1 else f"{log.topic} (generation {log.generation})"
        verdict = ", ".join(_counts(found)) or "whole"
        lost = f"; {log.lost:,} records were lost before they could be archived" if log.lost else ""
        amounts = f"{len(log.files):,} files, {log.rows:,} records, {size:,} bytes"
        lines.append(f"{printable(name)}: {amounts}: {verdict}{lost}")
        content_of_logs.append({
            "topic": log.topic, "log": f"{log.log:016x}", "generation": log.generation,
            "files": len(log.files), "records": log.rows, "bytes": size, "lost": log.lost,
            **_files(found), "whole": not found,
        })  # fmt: skip
    content = {
        "archive": str(root),
        "logs": content_of_logs,
        "files": sum(len(log.files) for log in logs),
        "records": sum(log.rows for log in logs),
        **_files(findings),
        "findings": [one._asdict() for one in findings],
        "seconds": round(seconds, 3),
        "whole": not findings,
    }
    return JobSummary(lines, content, not findings)


def findings_lines(findings: Sequence[FileFinding]) -> list[str]:
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


def _counts(findings: Sequence[FileFinding]) -> list[str]:
    """The number of findings of each kind, and of their records."""
    counts = Counter(one.kind for one in findings)
    kinds = ("missing", "damaged", "unreadable", "manifest")
    found = [f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]]
    return [*found, f"{sum(one.rows for one in findings):,} records in them"] if found else []
