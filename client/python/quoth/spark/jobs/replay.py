"""Replays Parquet files into topics, in their order, each record once: an archive, a part of it, or any
table.

    quoth pipeline replay INPUT [--topic TOPIC] [--to TOPIC] [--since TIME] [--until TIME] [--speed X]

INPUT is an archive, a Parquet file or a folder of such, which the driver and all executors can read. The same
command continues a run that was interrupted, and does nothing after a complete one, see `quoth.spark.replay`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from quoth.client import Client
from quoth.spark.jobs.session import Job, JobBroker, JobSummary
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import ReplayRequest, ReplayStream, input_of
from quoth.spark.replay.replayer import LATE_S, RateLimit, Replayer, StreamTally, newest_version
from quoth.spark.workers import SparkWorkers
from quoth.timestamps import Timestamp, as_pointer
from quothwire.errors import NotFound, error

_PLANNED = ("chunks", "records")
_COUNTS = (*_PLANNED, "bytes", "duplicates", "undecoded")
"""The fields of `StreamTally` in a summary."""


def job(
    path: str | Path,
    *,
    request: ReplayRequest = ReplayRequest(),  # noqa: B008
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    broker: JobBroker,
    limits: ChunkLimits = ChunkLimits(),  # noqa: B008
    speed: float | None = None,
    same_topic: bool = False,
    dry_run: bool = False,
) -> Job | JobSummary:
    """Prepare the replay of an archive or a table; returns its summary if nothing is left to replay.

    request: the selection and the targets; since, until: the selection by time, the one included and the
    other not. limits: of a chunk. speed: seconds of original time in one second. same_topic: allow the log
    that was archived as target. dry_run: only report what would be done.

    Raises `RequestError` for an invalid request, `NotFound`, `Conflict` ``sequence_reused`` for a table that
    has changed, `Damaged`, OSError, `Disconnected`; the job raises as `Replayer.run`.
    """
    _check_speed(speed)
    begin, end = (None if one is None else as_pointer(one) for one in (since, until))
    source = input_of(path, request._replace(since=begin, until=end))
    if request.name is None or not source.is_archive:
        _check_fixed(since, until)
    if speed is not None and not source.is_archive and not request.time:
        raise error(
            "bad_request", f"a pace needs a time: which column of {path} has it?", "--time-column NAME"
        )
    with broker.client(broker.timeout) as client:
        streams = source.streams()
        if not same_topic:
            _check_elsewhere(client, streams)
        left = [_left(client, stream, limits) for stream in streams]
    if dry_run:
        return _outline(left, speed)
    if not any(one.chunks for one in left):
        return summary_of(left, 0.0)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        rate_limit = None if speed is None else RateLimit(speed, broker.tell)
        with broker.awaited() as client:
            replayer = Replayer(
                client, source, SparkWorkers(spark), broker.tell, limits, rate_limit, broker.key
            )
            try:
                replayer.run(streams)
            except BaseException:
                if replayer.chunks:
                    broker.tell(f"{_amounts(replayer.tallies.values())} were replayed; run it again to go on")
                raise
        seconds, behind = time.monotonic() - began, None if rate_limit is None else rate_limit.behind
        return summary_of(list(replayer.tallies.values()), seconds, behind)

    return Job(run, "chunks that were published are whole: run it again to go on behind them")


def summary_of(tallies: list[StreamTally], seconds: float, behind: float | None = None) -> JobSummary:
    """Summarize a replay. behind: the largest delay in seconds, None without a rate limit."""
    records = sum(one.records for one in tallies)
    rate = round(records / seconds) if seconds else 0
    lines = [_line(one) for one in tallies]
    in_time = f"replayed {_amounts(tallies)} in {seconds:.1f} s: {rate:,} records a second"
    lines.append(in_time if records else "nothing was stored")
    if behind is not None and behind >= LATE_S:
        lines.append(f"it could not keep up: {behind:.1f} s late")
    content = {
        "topics": [_content(one) for one in tallies],
        **_sums(tallies),
        "seconds": round(seconds, 3),
        "records_per_s": rate,
    }
    if behind is not None:
        content["behind_s"] = round(behind, 3)
    return JobSummary(lines, content)


# -- what can be refused without Spark ----------------------------------------------------------------------


def _check_fixed(since: Timestamp | None, until: Timestamp | None) -> None:
    """Raise ``bad_request`` for a time that is different in every run."""
    for name, time_ in (("since", since), ("until", until)):
        if isinstance(time_, str) and time_.strip().startswith(("-", "now")):
            raise error(
                "bad_request",
                f"--{name} {time_} is another time in every run, so the next one would be another replay",
                "say the time itself, like 2026-01-02T03:04:05Z; or name the replay, if it is of an archive: "
                "--application NAME",
            )


def _check_speed(speed: float | None) -> None:
    if speed is not None and not (math.isfinite(speed) and speed > 0):
        raise error("bad_request", f"--speed {speed} is no speed", "a number above 0: 1 is the original one")


def _check_elsewhere(broker: Client, streams: list[ReplayStream]) -> None:
    """Raise ``bad_request`` if the target of a stream is the log that was archived."""
    for stream in streams:
        try:
            log = broker.topic(stream.target).log
        except NotFound:
            continue
        if log == stream.log:
            raise error(
                "bad_request",
                f"topic {stream.target!r} is what was archived: its records would be in it twice, and in the "
                "archive after its next run",
                "name another one: --to TOPIC; or say --same-topic if that is what you want",
            )


def _left(broker: Client, stream: ReplayStream, limits: ChunkLimits) -> StreamTally:
    """Count the chunks and the records of a stream that are not replayed yet."""
    began = stream.position(newest_version(broker, stream))
    chunks = list(stream.chunks(limits, began=began))
    return StreamTally(stream, began, len(chunks), sum(one.records for one in chunks))


# -- the summary --------------------------------------------------------------------------------------------


def _outline(left: list[StreamTally], speed: float | None) -> JobSummary:
    """Summarize a dry run."""
    lines = [
        f"{_where(one)}at most {one.records:,} records in {one.chunks:,} chunks{_behind(one)}" for one in left
    ]
    topics = [_content(one, _PLANNED) for one in left]
    content = {"dry_run": True, "topics": topics, **_sums(left, _PLANNED), "speed": speed}
    return JobSummary([*lines, "nothing was replayed"], content)


def _line(tally: StreamTally) -> str:
    if not tally.chunks and tally.began:
        return f"{_where(tally)}nothing is left to replay{_behind(tally)}"
    bare = f", {tally.undecoded:,} of them without headers that cannot be decoded" if tally.undecoded else ""
    return f"{_where(tally)}{tally.records:,} records{bare}{_behind(tally)}"


def _where(tally: StreamTally) -> str:
    return f"{tally.stream.origin} -> {tally.stream.target}: "


def _behind(tally: StreamTally) -> str:
    """Describe the position of an earlier run."""
    return f", all up to {tally.stream.place(tally.began)} was replayed before" if tally.began else ""


def _content(tally: StreamTally, counts: Sequence[str] = _COUNTS) -> dict[str, Any]:
    stream = tally.stream
    where = {"from": stream.origin, "to": stream.target, "application": stream.application}
    return {**where, "before": tally.began, **_sums([tally], counts)}


def _sums(tallies: Collection[StreamTally], counts: Sequence[str] = _COUNTS) -> dict[str, int]:
    return {name: sum(getattr(one, name) for one in tallies) for name in counts}


def _amounts(tallies: Collection[StreamTally]) -> str:
    sums = _sums(tallies)
    return f"{sums['records']:,} records in {sums['chunks']:,} chunks, {sums['bytes']:,} bytes"
