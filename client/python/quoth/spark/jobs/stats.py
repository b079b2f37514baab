"""Computes statistics of topics by windows of time: records, bytes, rates, keys, gaps, largest records, lag.

Beside them, it shows the lag of each group and named cursor, as it is at the moment of a look.

    quoth pipeline stats TOPIC... [--window 1m]

Windows begin at multiples of their length since 1970, so that those of two runs or two topics match. The
number of keys is exact up to 1,023 distinct ones in a window; above, it is within 3 % in two cases of three.
With --follow each window is reported when it has ended, see `quoth.spark.statistics.following`.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from quoth.message import Gap
from quoth.spark.atomic_files import local_path, refuse_existing
from quoth.spark.jobs.session import Job, JobBroker, JobSummary, looking, schema_of
from quoth.spark.source.ranges import named
from quoth.spark.statistics.following import Follower
from quoth.spark.statistics.lags import GroupLagRow, group_lags
from quoth.spark.statistics.survey import Survey, SurveyRange, WindowRow, survey
from quoth.spark.workers import SparkWorkers, until_next_look
from quoth.timestamps import Timestamp, cursor, last_before, now
from quothwire import pointer as pointers
from quothwire.errors import QuothError, error
from quothwire.protocol.group_settings import CURSOR
from quothwire.text.paths import given_path
from quothwire.text.quantity import parse_span

WINDOW = "1m"
WINDOW_MIN_US = 1_000
ROWS_MAX = 10_000
"""Windows that a summary lists, the newest ones; --out keeps all of them."""

_COLUMNS = "{:<16}  {:<20}  {:>11}  {:>11}  {:>15}  {:>13}  {:>10}  {:>10}  {:>8}  {:>11}"
HEADING = _COLUMNS.format(
    "topic", "window", "records", "records/s", "bytes", "bytes/s", "keys", "largest", "missing", "behind"
)
"""The heading of the lines of `line`."""


def job(
    topics: str | Iterable[str],
    *,
    broker: JobBroker,
    window: str = WINDOW,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    out: str | None = None,
) -> Job:
    """Prepare the statistics of the present records. window: a span of time. out: the folder for windows,
    gaps and the lags of groups.

    Raises `RequestError` for an invalid span or time, FileExistsError, and as `JobBroker.checked`. The job
    raises as `survey`.
    """
    width, after, end = window_us(window), cursor(None, since, 0), last_before(until)
    refuse_existing(out)
    selection = broker.checked(topics)

    def run(spark: SparkSession) -> JobSummary:
        with broker.awaited() as client:
            names = named(client, selection)
            ends = {name: min(end, max(now(), client.topic(name).last)) for name in names}
            ranges = [SurveyRange(name, after, ends[name]) for name in names if after < ends[name]]
            seen = survey(client, SparkWorkers(spark), ranges, width, broker.key)
            seen = seen._replace(lags=group_lags(client, names))
        if out is not None:
            save(spark, seen, out)
        return summary_of(names, seen)

    return looking(run, out)


def following(
    topics: str | Iterable[str],
    *,
    every: float,
    checkpoint: str | None = None,
    broker: JobBroker,
    window: str = WINDOW,
    since: Timestamp | None = None,
    out: str | None = None,
    show: Callable[[Survey], None],
) -> Job:
    """Prepare the statistics of windows as they end, for ever, looking each `every` seconds.

    checkpoint: the directory that remembers the position; without one it begins anew each time. since: where
    a new checkpoint begins, by default at the oldest record. out: the folder for windows, gaps and lags of
    each look that has windows; needs a checkpoint. show: called with each look that has windows or lags;
    after a crash once more with the last windows. Raises as `job` and `Follower`.
    """
    width, begin = window_us(window), cursor(None, since, 0) + 1
    selection = broker.checked(topics)
    if out is not None and checkpoint is None:
        text = "what is kept there needs a checkpoint, or a restart would keep the same windows again"
        raise error("bad_request", f"--out {out}: {text}", "say --checkpoint DIR, too")
    directory = None if checkpoint is None else local_path(checkpoint)
    if out is not None:
        given_path(out, "--out")
    with Follower(directory, selection, width, out) as begun:
        if begun.is_new:
            refuse_existing(out)

    def run(spark: SparkSession) -> JobSummary:
        def keep(lags: list[GroupLagRow], number: int, seen: Survey) -> None:
            seen = seen._replace(lags=lags)
            if out is not None:
                save(spark, seen, out, number)
            show(seen)

        with (
            broker.awaited() as client,
            Follower(directory, selection, width, out, begin) as follower,
        ):
            if follower.is_new:
                follower.save()
            while True:
                began, failed = time.monotonic(), None
                try:
                    lags = group_lags(client, named(client, selection))
                    seen = follower.look(client, SparkWorkers(spark), partial(keep, lags), broker.key)
                    if seen is None and lags:
                        show(Survey([], [], {}, lags))
                except QuothError as problem:
                    if not problem.retryable:
                        raise
                    broker.tell(f"{problem.code}: {problem.text}; nothing is lost, it goes on by itself")
                    failed = problem
                time.sleep(until_next_look(began, every, failed))

    return Job(run, "what was shown is final: run it again; it goes on where its checkpoint says")


def window_us(window: str) -> int:
    """The length of a window, a span such as 1m, in microseconds. Raises `RequestError` ``bad_request``."""
    try:
        width = round(parse_span(window, infinity=None) * 1e6)
    except QuothError as problem:
        raise error("bad_request", f"window: {problem.text}", problem.hint) from None
    if not WINDOW_MIN_US <= width <= pointers.POINTER_MAX:
        raise error("bad_request", f"a window of {window}", "from 1ms to 100000w")
    return width


def save(spark: SparkSession, seen: Survey, out: str, number: int | None = None) -> None:
    """Write windows, gaps and lags as Parquet: OUT/windows, OUT/gaps and OUT/lags.

    number: of a look; then in folders look=NUMBER of these, in the place of what is there.
    """
    windows = _frame(spark, seen.rows, WindowRow)
    for name in ("start", "end"):
        windows = windows.withColumn(name, functions.timestamp_micros(name))
    gaps = _frame(spark, map(astuple, seen.gaps), Gap)
    lags = _frame(spark, seen.lags, GroupLagRow).withColumn("at", functions.timestamp_micros("at"))
    for frame, kind in ((windows, "windows"), (gaps, "gaps"), (lags, "lags")):
        if number is None:
            frame.write.parquet(f"{out}/{kind}")
        else:
            frame.write.mode("overwrite").parquet(f"{out}/{kind}/look={number:09d}")


def summary_of(topics: Iterable[str], seen: Survey) -> JobSummary:
    """Summarize a survey: a line for each window, gap, topic and group. It is good if nothing is damaged."""
    rows, gaps = defaultdict[str, list[WindowRow]](list), defaultdict[str, list[Gap]](list)
    for row in seen.rows:
        rows[row.topic].append(row)
    for gap in seen.gaps:
        gaps[gap.topic].append(gap)
    summaries = [_of_topic(topic, rows[topic], gaps[topic]) for topic in topics]
    left_out = max(0, len(seen.rows) - ROWS_MAX)
    lines = [HEADING] if seen.rows else []
    if left_out:
        lines.append(f"... {left_out:,} windows before these: --out DIR keeps all of them")
    lines += map(line, seen.rows[left_out:])
    lines += map(gap_line, seen.gaps)
    lines += map(_topic_line, summaries)
    lines += map(lag_line, seen.lags)
    content = {
        "topics": summaries,
        "windows": list(map(content_of, seen.rows[left_out:])),
        "windows_left_out": left_out,
        "gaps": list(map(asdict, seen.gaps)),
        "groups": list(map(lag_content, seen.lags)),
    }
    return JobSummary(lines, content, not any(gap.reason == "damaged" for gap in seen.gaps))


def line(row: WindowRow) -> str:
    """Format a window for the user."""
    behind = "-" if row.behind_records is None else f"{row.behind_records:,}"
    start = pointers.to_text(row.start)
    return _COLUMNS.format(
        row.topic,
        start.replace(".000000Z", "Z"),
        f"{row.records:,}",
        f"{row.records_per_s:,.1f}",
        f"{row.value_bytes + row.key_bytes:,}",
        f"{row.bytes_per_s:,.0f}",
        f"{row.keys:,}",
        f"{row.largest:,}",
        f"{row.missing:,}",
        behind,
    )


def gap_line(gap: Gap) -> str:
    """Format a gap for the user."""
    count = "an unknown number of records" if gap.records < 0 else f"{gap.records:,} records"
    after = f"behind {gap.after} and " if gap.after else ""
    return f"{gap.topic}: {count} missing {after}before {gap.next}: {gap.reason}"


def lag_line(lag: GroupLagRow) -> str:
    """Format the lag of a group for the user."""
    kind = "cursor" if lag.mode == CURSOR else "group"
    at = pointers.to_text(lag.at // 1_000_000 * 1_000_000).replace(".000000Z", "Z")
    behind = f"{lag.records:,} records and {lag.seconds:,.1f} s behind at {at}"
    gone = f"; {lag.gone:,} records are gone" if lag.gone else ""
    return f"{lag.topic}: {kind} {lag.group} is {behind}{gone}"


def lag_content(lag: GroupLagRow) -> dict[str, Any]:
    """The lag of a group as an object of JSON; its time as text."""
    return lag._asdict() | {"at": pointers.to_text(lag.at)}


def content_of(row: WindowRow) -> dict[str, Any]:
    """A window as an object of JSON; its start and its end as times."""
    content = row._asdict()
    return content | {name: pointers.to_text(content[name]) for name in ("start", "end")}


def shown(write: Callable[[str], object], *, as_json: bool) -> Callable[[Survey], None]:
    """Make a function that prints a look: windows, gaps, then lags, a line each. write: gets the lines of a
    look."""
    heading = iter([] if as_json else [HEADING])  # once

    def show(seen: Survey) -> None:
        if as_json:
            rows = [{"window": content_of(row)} for row in seen.rows]
            gaps = [{"gap": asdict(gap)} for gap in seen.gaps]
            lines = list(map(json.dumps, [*rows, *gaps, *({"group": lag_content(lag)} for lag in seen.lags)]))
        else:
            lines = [*heading, *map(line, seen.rows), *map(gap_line, seen.gaps), *map(lag_line, seen.lags)]
        write("\n".join(lines))

    return show


def refuse_together(follow: float | None, until: str | None, checkpoint: str | None) -> None:
    """Raise ``bad_request`` for options that exclude or need --follow, ``bad_setting`` for an empty path."""
    if checkpoint is not None:
        given_path(checkpoint, "--checkpoint")
    if follow is not None and until is not None:
        raise error("bad_request", "--until means nothing with --follow, which has no end", "leave it out")
    if follow is None and checkpoint is not None:
        raise error("bad_request", "--checkpoint means nothing without --follow", "leave it out")


def _frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], kind: type) -> DataFrame:
    return spark.createDataFrame(list(rows), schema_of(kind)).coalesce(1)


def _of_topic(topic: str, rows: list[WindowRow], gaps: list[Gap]) -> dict[str, Any]:
    """Summarize a topic."""
    with_records = [row for row in rows if row.records]
    return {
        "topic": topic,
        "windows": len(rows),
        "records": sum(row.records for row in rows),
        "bytes": sum(row.value_bytes + row.key_bytes for row in rows),
        "missing": sum(max(0, gap.records) for gap in gaps),
        "gaps": len(gaps),
        "first": with_records[0].first if with_records else 0,
        "last": with_records[-1].last if with_records else 0,
    }


def _topic_line(one: dict[str, Any]) -> str:
    topic = one["topic"]
    missing = f"; {one['missing']:,} missing" if one["gaps"] else ""
    if not one["records"]:
        return f"{topic}: no records{missing}"
    return (
        f"{topic}: {one['records']:,} records, {one['bytes']:,} bytes in {one['windows']:,} windows{missing}"
    )
