"""Parquet files back into topics, in their order, each record once: all of an archive, a stretch, any table.

    quoth pipeline replay INPUT [--topic TOPIC] [--to TOPIC] [--since TIME] [--until TIME] [--speed X]
    python -m quoth.spark.jobs.replay INPUT ... [--url URL] [--master URL] [--format json]
    spark-submit .../quoth/spark/jobs/replay.py INPUT ...

INPUT is an archive, a Parquet file or a folder of such, where the driver and all executors have it. The same
command goes on with a run that was broken off, and finds nothing to do after one that was not. How that is
known, see `quoth.spark.replay`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, Client
from quoth.spark.jobs import session
from quoth.spark.jobs.broker import awaited
from quoth.spark.jobs.session import JobSummary, tell
from quoth.spark.replay.chunking import Chunk, ChunkLimits
from quoth.spark.replay.inputs import ReplayRequest, ReplayStream, TableInput, input_of
from quoth.spark.replay.rate_limit import LATE_S
from quoth.spark.replay.replayer import Replayer, StreamTally, newest_version
from quoth.spark.workers import SparkWorkers
from quoth.timestamps import Timestamp, as_pointer
from quothwire.errors import NotFound, error

_COUNTS = ("chunks", "records", "bytes", "duplicates", "undecoded")
"""Of `StreamTally`, in a summary."""


class Remaining(NamedTuple):
    """What of a stream is not replayed yet. began: the position that an earlier run has come to."""

    stream: ReplayStream
    began: int
    chunks: list[Chunk]


def job(
    path: str | Path,
    *,
    wish: ReplayRequest = ReplayRequest(),  # noqa: B008
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    url: str = DEFAULT_URL,
    timeout: float = DEFAULT_TIMEOUT_S,
    limits: ChunkLimits = ChunkLimits(),  # noqa: B008
    speed: float | None = None,
    same_topic: bool = False,
    dry_run: bool = False,
    tell: Callable[[str], None],
) -> session.Job | JobSummary:
    """The job that replays what lies at a path; or what there is to tell, if nothing is left to do.

    wish: what of it, and where to; since, until: what of it by its time, the one included and the other not.
    timeout: seconds that the broker may take for an answer, more once the job has begun. limits: what a
    chunk holds. speed: seconds of original time in one second. same_topic: even into the log that it was
    archived from. dry_run: tell what would be done, and do nothing. tell: gets what a person should know
    meanwhile.

    Raises `RequestError` for a wish that cannot be, `NotFound`, `Conflict` ``sequence_reused`` for a table
    that has changed, `Damaged`, OSError, `Disconnected`; the job raises as `Replayer.run`.
    """
    _check_speed(speed)
    begin, end = (None if moment is None else as_pointer(moment) for moment in (since, until))
    source = input_of(path, wish._replace(since=begin, until=end))
    if wish.name is None or isinstance(source, TableInput):
        _check_moments(since, until)
    if speed is not None and isinstance(source, TableInput) and not wish.time:
        raise error(
            "bad_request", f"a pace needs a time: which column of {path} has it?", "--time-column NAME"
        )
    with Client(url, None, timeout) as broker:
        streams = source.streams()
        if not same_topic:
            _check_elsewhere(broker, streams)
        left = [_left(broker, stream, limits) for stream in streams]
    if dry_run:
        return _outline(left, speed)
    if not any(one.chunks for one in left):
        return summary_of([StreamTally(one.stream, one.began) for one in left], 0.0)

    def run(spark: SparkSession) -> JobSummary:
        began = time.monotonic()
        with awaited(url, timeout, tell) as broker:
            replayer = Replayer(broker, source, SparkWorkers(spark), tell, limits=limits, speed=speed)
            try:
                replayer.run(streams)
            except BaseException:
                if replayer.tally.chunks:
                    done = _amounts(list(replayer.tally.streams.values()))
                    tell(f"{done} were replayed; run it again to go on")
                raise
        tally, seconds = replayer.tally, time.monotonic() - began
        return summary_of(list(tally.streams.values()), seconds, None if speed is None else tally.behind)

    return session.Job(run, "chunks that were published are whole: run it again to go on behind them")


def summary_of(told: list[StreamTally], seconds: float, behind: float | None = None) -> JobSummary:
    """What was done with each stream. behind: the most seconds that it was late, None without a pace."""
    records = sum(one.records for one in told)
    rate = round(records / seconds) if seconds else 0
    lines = [_line(one) for one in told]
    in_time = f"replayed {_amounts(told)} in {seconds:.1f} s: {rate:,} records a second"
    lines.append(in_time if records else "nothing was stored")
    if behind is not None and behind >= LATE_S:
        lines.append(f"it could not keep up: {behind:.1f} s late")
    content = {
        "topics": [_content(one) for one in told],
        **_sums(told),
        "seconds": round(seconds, 3),
        "records_per_s": rate,
    }
    if behind is not None:
        content["behind_s"] = round(behind, 3)
    return JobSummary(lines, content)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it as a module."""
    parser = session.arguments(__doc__)
    parser.add_argument("input", metavar="INPUT", help="an archive, a Parquet file, or a folder of such")
    for name, metavar, text in (
        ("--topic", "TOPIC", "only these topics of an archive: names, patterns"),
        ("--to", "TOPIC", "into which topic: a name, or OLD=NEW"),
    ):
        parser.add_argument(name, metavar=metavar, action="append", default=[], help=text)
    for name, metavar, text in (
        ("--since", "TIME", "from this time on"),
        ("--until", "TIME", "before this time"),
        ("--value-column", "NAME", "of a table (default: value)"),
        ("--key-column", "NAME", "of a table (default: key, if it is there)"),
        ("--headers-column", "NAME", "of a table (default: headers, if it is there)"),
        ("--time-column", "NAME", "of a table, for --since, --until and --speed"),
        ("--pointer-column", "NAME", "of a table, goes into a header"),
        ("--application", "NAME", "by which a replay is known, instead of by what it replays"),
    ):
        parser.add_argument(name, metavar=metavar, help=text)
    parser.add_argument("--speed", metavar="X", type=float, help="X seconds of original time in one")
    parser.add_argument("--chunk-bytes", metavar="SIZE", type=session.size, default=ChunkLimits().bytes)
    parser.add_argument("--same-topic", action="store_true", help="even into what it was archived from")
    parser.add_argument("--dry-run", action="store_true", help="tell what would be done")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"where the broker is (default: {DEFAULT_URL})")
    parser.add_argument("--timeout", metavar="SPAN", type=session.span, default=DEFAULT_TIMEOUT_S)
    typed = parser.parse_args(arguments)
    session.run("replay", lambda: _typed(typed), typed)


# -- what can be refused without Spark ----------------------------------------------------------------------


def _typed(typed: argparse.Namespace) -> session.Job | JobSummary:
    """The job of what was typed."""
    wish = ReplayRequest(
        topics=tuple(typed.topic),
        to=tuple(typed.to),
        value=typed.value_column,
        key=typed.key_column,
        headers=typed.headers_column,
        time=typed.time_column,
        pointer=typed.pointer_column,
        name=typed.application,
    )
    return job(
        typed.input,
        wish=wish,
        since=typed.since,
        until=typed.until,
        url=typed.url,
        timeout=typed.timeout,
        limits=ChunkLimits(bytes=typed.chunk_bytes),
        speed=typed.speed,
        same_topic=typed.same_topic,
        dry_run=typed.dry_run,
        tell=tell,
    )


def _check_moments(since: Timestamp | None, until: Timestamp | None) -> None:
    """Raise ``bad_request`` for a time that is another one in every run."""
    for name, moment in (("since", since), ("until", until)):
        if isinstance(moment, str) and moment.strip().startswith(("-", "now")):
            raise error(
                "bad_request",
                f"--{name} {moment} is another time in every run, so the next one would be another replay",
                "say the time itself, like 2026-01-02T03:04:05Z; or name the replay, if it is of an archive: "
                "--application NAME",
            )


def _check_speed(speed: float | None) -> None:
    if speed is not None and not (math.isfinite(speed) and speed > 0):
        raise error("bad_request", f"--speed {speed} is no speed", "a number above 0: 1 is the original one")


def _check_elsewhere(broker: Client, streams: list[ReplayStream]) -> None:
    """Raise ``bad_request`` for records that would go into the log that they come from."""
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


def _left(broker: Client, stream: ReplayStream, limits: ChunkLimits) -> Remaining:
    """What of a stream is not replayed yet."""
    began = stream.position(newest_version(broker, stream))
    found = (chunk.behind(began) for chunk in stream.chunks(limits))
    return Remaining(stream, began, [chunk for chunk in found if chunk is not None])


# -- what is told -------------------------------------------------------------------------------------------


def _outline(left: list[Remaining], speed: float | None) -> JobSummary:
    """What would be done."""
    lines, topics = [], []
    for stream, began, chunks in left:
        sums = {"chunks": len(chunks), "records": sum(one.records for one in chunks)}
        lines.append(
            f"{stream.origin} -> {stream.target}: at most {sums['records']:,} records in "
            f"{sums['chunks']:,} chunks{_behind(stream, began)}"
        )
        topics.append({**_of(stream, began), **sums})
    lines.append("nothing was replayed")
    totals = {name: sum(one[name] for one in topics) for name in ("chunks", "records")}
    return JobSummary(lines, {"dry_run": True, "topics": topics, **totals, "speed": speed})


def _line(told: StreamTally) -> str:
    where = f"{told.stream.origin} -> {told.stream.target}: "
    if not told.chunks and told.began:
        return f"{where}nothing is left to replay{_behind(told.stream, told.began)}"
    bare = f", {told.undecoded:,} of them without headers that cannot be decoded" if told.undecoded else ""
    return f"{where}{told.records:,} records{bare}{_behind(told.stream, told.began)}"


def _behind(stream: ReplayStream, began: int) -> str:
    """Where an earlier run has come to."""
    if not began:
        return ""
    return f", all up to {stream.place(began)} was replayed before"


def _of(stream: ReplayStream, began: int) -> dict[str, Any]:
    return {"from": stream.origin, "to": stream.target, "application": stream.application, "before": began}


def _content(told: StreamTally) -> dict[str, Any]:
    return {**_of(told.stream, told.began), **_sums([told])}


def _sums(told: list[StreamTally]) -> dict[str, int]:
    return {name: sum(getattr(one, name) for one in told) for name in _COUNTS}


def _amounts(told: list[StreamTally]) -> str:
    sums = _sums(told)
    return f"{sums['records']:,} records in {sums['chunks']:,} chunks, {sums['bytes']:,} bytes"


if __name__ == "__main__":
    main()
