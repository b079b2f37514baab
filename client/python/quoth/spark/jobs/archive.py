"""Archives topics to Parquet files, each record once, through crashes.

    quoth pipeline archive DIR TOPIC...

DIR is a folder that the driver and all executors have. The next run goes on where the manifest in it says,
see `quoth.spark.archive`; one at a time goes on with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, Client
from quoth.spark.archive.archiver import ArchiveTally, Policy, TopicArchiver
from quoth.spark.archive.store import read_manifest
from quoth.spark.atomic_files import local_path
from quoth.spark.jobs import session
from quoth.spark.jobs.session import JobSummary, awaited
from quoth.spark.jobs.verify import findings_lines
from quoth.spark.source.ranges import named
from quoth.spark.workers import SparkWorkers


def job(
    archive: str | Path,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    timeout: float = DEFAULT_TIMEOUT_S,
    policy: Policy = Policy(),  # noqa: B008
    follow: float | None = None,
    tell: Callable[[str], None],
) -> session.Job:
    """Prepare the archiving of topics: once, or for ever, each `follow` seconds.

    timeout: seconds that the broker may take for an answer, more once the job runs. tell: called with each
    line for the user. Raises `RequestError` for an archive that is not a path or has another version, and for
    a bad selection, `Damaged` for its manifest, OSError, `NotFound` for topics that do not exist,
    `Disconnected`. The job raises as `TopicArchiver.run`.
    """
    root, selection = local_path(archive), [topics] if isinstance(topics, str) else list(topics)
    with suppress(FileNotFoundError):
        read_manifest(root)
    with Client(url, None, timeout) as broker:
        named(broker, selection)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        with awaited(url, timeout, tell) as broker:
            archiver = TopicArchiver(broker, root, SparkWorkers(spark), selection, policy, tell)
            if follow is None:
                archiver.run()
            else:
                archiver.follow(follow)
        return summary_of(archiver.tally, root, time.monotonic() - began)

    return session.Job(run, "what was committed is archived: run it again to go on behind that")


def summary_of(tally: ArchiveTally, root: Path, seconds: float) -> JobSummary:
    """Summarize an archiving. It is good if no record was lost, and no file of earlier runs is missing."""
    rate = tally.records / seconds if seconds else 0.0
    lines = [
        f"archived {', '.join(sorted(tally.topics))}: {tally.records:,} records, {tally.bytes:,} bytes in "
        f"{tally.files:,} files, {seconds:.1f} s, {rate:,.0f} records a second"
    ]
    if tally.lost:
        lines.append(f"{tally.lost:,} records were gone before they could be archived")
    if tally.trimmed:
        lines.append(f"the topics let go of {tally.trimmed:,} records")
    lines += findings_lines(tally.findings)
    content = {
        "archive": str(root),
        **vars(tally),
        "topics": sorted(tally.topics),
        "seconds": round(seconds, 3),
        "records_per_s": round(rate, 1),
        "findings": [one._asdict() for one in tally.findings],
    }
    return JobSummary(lines, content, good=not tally.lost and not tally.findings)
