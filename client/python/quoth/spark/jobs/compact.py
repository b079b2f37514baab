"""Merges the small files of an archive into large ones, a day at a time, with the same records.

    quoth pipeline compact DIR [TOPIC...]

DIR is an archive's folder, which the driver and all executors have. Merged records are compared with the
manifest, and a reader of the manifest sees the old files or the new ones. Files that are missing or damaged
are reported, stay unchanged, and make the exit status 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from quoth.spark.archive.archiver import KEEP_REPLACED_S
from quoth.spark.archive.compaction import TARGET_BYTES, Compacted, Compactor
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.jobs import session
from quoth.spark.jobs.session import JobSummary, printable
from quoth.spark.jobs.verify import archive_at, findings_lines
from quoth.spark.workers import SparkWorkers


def job(
    archive: str | Path,
    topics: Sequence[str] = (),
    *,
    target_bytes: int = TARGET_BYTES,
    keep_replaced: float = KEEP_REPLACED_S,
) -> session.Job:
    """Prepare the compaction of some topics of an archive, by default of all. See `Compactor`.

    Raises `RequestError` if there is no archive, or for a bad selection, `NotFound` ``unknown_topic`` for
    topics that it does not have, `Damaged`. The job raises as `Compactor.run`, and `Conflict` ``locked``
    while another program works on the archive.
    """
    root, selection = archive_at(archive, topics)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        with ArchiveStore(root) as store:
            compactor = Compactor(
                store,
                SparkWorkers(spark),
                topics=selection,
                target_bytes=target_bytes,
                keep_replaced=keep_replaced,
            )
            compactor.run()
        return summary_of(compactor.done, root, time.monotonic() - began)

    return session.Job(run, "what was committed is merged, the rest is as it was: run it again to go on")


def summary_of(done: Compacted, root: Path, seconds: float) -> JobSummary:
    """Summarize a compaction. It is good if no file is missing or damaged."""
    line = (
        f"merged {done.merged:,} files into {done.files:,}, {done.records:,} records, {done.bytes:,} bytes, "
        f"in {seconds:.1f} s; {done.removed_files:,} files removed"
    )
    findings = [one._asdict() for one in done.findings]
    content = {"archive": str(root), **vars(done), "seconds": round(seconds, 3), "findings": findings}
    found = [f"{one.kind}: {printable(one.text)}" for one in done.findings]
    return JobSummary([*found, line, *findings_lines(done.findings)], content, not done.findings)
