"""Divides topics into ranges, one for each task of Spark, and runs functions on them in Python workers.

    ranges = topic_ranges(spark, "orders.*", url="tcp://127.0.0.1:5555", since="-1d")
    foreach_partition(ranges, lambda range_, batches: load(batches))

Records do not pass through the JVM. A repeated task gets the same range with the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quoth.client import DEFAULT_URL, Client, connect
from quoth.merging.selection import Selection
from quoth.message import Gap, OnGap
from quoth.reader import log_gap
from quoth.spark.connections import check_key_path
from quoth.spark.source.offset_planner import share
from quoth.spark.source.partitioning import split
from quoth.spark.source.range_reader import COLUMNS, Decode, TopicRange, check_decode, records_of
from quoth.timestamps import Timestamp, cursor, last_before
from quothwire.errors import error
from quothwire.protocol.messages import PARTS_MAX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MANY = 2**20
"""Rows of the job that counts tasks: enough for one in each."""
_LONG = ("after", "until", "records", "bytes")
_FRAME = ", ".join(f"{name}: {'long' if name in _LONG else 'string'}" for name in TopicRange._fields)


def topic_ranges(
    spark: SparkSession | SparkContext,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int | None = None,
    on_gap: OnGap | None = None,
) -> RDD[TopicRange]:
    """Divide the present records of topics into ranges: an RDD with one range in each partition.

    topics: names and patterns, as for `Client.read_many`. url: the broker, as the driver and all workers
    reach it. key: the path of the key file, which all of them have. after, since, until: as for
    `Client.batches`, for each topic. parts: about the number of ranges, at least one for each topic with
    records; by default the number of tasks that Spark runs at a time. on_gap: called for records behind
    `after` that are gone; logs a warning by default. Raises ``bad_request`` for a session of Spark Connect,
    which has no RDDs.
    """
    context: SparkContext | None = context_of(spark)
    if context is None:
        text = "a session of Spark Connect has no RDDs"
        raise error("bad_request", text, "topic_ranges_frame gives the ranges as a frame, which it has")
    wanted = context.defaultParallelism if parts is None else parts
    check_key_path(key)
    with connect(url, key=key) as broker:
        found = planned(
            broker, topics, key=key, after=after, since=since, until=until, parts=wanted, on_gap=on_gap
        )
    return context.parallelize(found, max(1, len(found)))


def topic_ranges_frame(
    spark: SparkSession,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int | None = None,
    on_gap: OnGap | None = None,
) -> DataFrame:
    """Divide topics as `topic_ranges` does, into a DataFrame with one range in each partition; log is hex.

    It is for `map_in_arrow` and `foreach_partition`, and works in a session of Spark Connect.
    """
    from pyspark.sql import functions

    wanted = _parallelism(spark) if parts is None else parts
    check_key_path(key)
    with connect(url, key=key) as broker:
        found = planned(
            broker, topics, key=key, after=after, since=since, until=until, parts=wanted, on_gap=on_gap
        )
    rows = [{**one._asdict(), "log": f"{one.log:016x}"} for one in found]
    listed = functions.from_json(functions.lit(json.dumps(rows)), f"array<struct<{_FRAME}>>")
    numbered = spark.range(0, len(found), 1, max(1, len(found)))
    return numbered.select(listed[functions.col("id").cast("int")].alias("range")).select("range.*")


def foreach_partition(
    ranges: RDD[TopicRange] | DataFrame,
    function: Callable[[TopicRange, Iterator[Any]], object],
    *,
    decode: Decode = "arrow",
    columns: Sequence[str] = COLUMNS,
) -> None:
    """Call `function(range, records)` for each range, in a worker.

    ranges: of `topic_ranges` or `topic_ranges_frame`. decode: the items of the iterator: ``arrow``, pyarrow
    RecordBatches with these columns; ``batches``, `quoth.Batch`es; ``messages``, `quoth.Message`s. Each
    record comes once, in order. The task fails with `NotFound` or `Damaged` if a record is missing. Spark
    repeats a failed task with the same range: effects happen at least once, and exactly once if the range is
    stored with them. The function must have finished its writes when it returns, because a worker may be
    killed afterwards.
    """
    from pyspark.sql import DataFrame

    check_decode(decode)

    def work(found: Iterable[TopicRange]) -> None:
        for one in found:
            function(one, records_of(one, decode, columns))

    def work_in_arrow(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work(_ranges_in(frames))
        yield from ()

    if isinstance(ranges, DataFrame):
        done = ranges.mapInArrow(work_in_arrow, "nothing INT")
        done.write.format("noop").mode("overwrite").save()
    else:
        ranges.foreachPartition(work)


def map_in_arrow(
    ranges: DataFrame,
    function: Callable[[TopicRange, Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    schema: StructType | str,
    *,
    columns: Sequence[str] = COLUMNS,
) -> DataFrame:
    """Return a DataFrame of this schema with what `function(range, record_batches)` yields for each range.

    ranges: of `topic_ranges_frame`. The guarantees are those of `foreach_partition`.
    """

    def work(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in _ranges_in(frames):
            yield from function(one, records_of(one, "arrow", columns))

    return ranges.mapInArrow(work, schema)


def planned(
    broker: Client,
    topics: str | Iterable[str],
    *,
    key: str | None = None,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int,
    on_gap: OnGap | None = None,
) -> list[TopicRange]:
    """Plan the ranges of `topic_ranges`, in the order of topics and pointers."""
    if not 1 <= parts <= PARTS_MAX:
        raise error("bad_request", f"{parts} parts", f"from 1 to {PARTS_MAX}")
    begin, end = cursor(after, since, 0), last_before(until)
    counts = {name: broker.count(name, begin, end) for name in named(broker, topics)}
    records = sum(counted.records for counted in counts.values())
    found: list[TopicRange] = []
    for name, counted in counts.items():
        until_now = min(end, counted.newest)
        tasks = share(parts, counted.records, records)
        ranges = split(broker, name, counted.log, begin, until_now, tasks, key)
        if begin and (counted.gone or sum(one.records for one in ranges) < counted.records):
            first = max(counted.first, ranges[0].after + 1) if ranges else until_now + 1
            (on_gap or log_gap)(Gap(name, begin, first, -1, "trimmed"))
        found += ranges
    return found


def context_of(spark: Any) -> Any | None:
    """The SparkContext of a session, or the context itself; None for a session of Spark Connect."""
    return spark if hasattr(spark, "parallelize") else getattr(spark, "sparkContext", None)


def _parallelism(spark: Any) -> int:
    """Return how many tasks run at a time, counted by a short job on Spark Connect."""
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(_MANY).selectExpr("spark_partition_id() AS part").distinct().count()
    return int(parts)


def _ranges_in(frames: Iterable[pa.RecordBatch]) -> Iterator[TopicRange]:
    """The ranges in a partition of `topic_ranges_frame`."""
    for frame in frames:
        for row in frame.to_pylist():
            yield TopicRange(**{**row, "log": int(row["log"], 16)})


def named(broker: Client, topics: str | Iterable[str]) -> list[str]:
    """Resolve names and patterns to the topics that exist now.

    Raises `NotFound` ``unknown_topic`` for a name without a topic, and if no topic matches.
    """
    selection = Selection(topics)
    names = selection.names
    if selection.has_patterns:
        names = [*names, *filter(selection.matches, broker.topics())]
    if not names:
        raise error("unknown_topic", f"no topic matches {selection}")
    for name in selection.names:
        broker.topic(name)
    return sorted(set(names))
