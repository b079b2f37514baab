"""Topics cut into ranges, one for each task of Spark, and what works on them in Python workers.

    ranges = topic_ranges(spark, "orders.*", url="tcp://127.0.0.1:5555", since="-1d")
    foreach_partition(ranges, lambda range_, batches: load(batches))

The records go from the broker to the worker that uses them: none of them passes through the JVM. A task that
is tried again gets the same range with the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quoth.client import DEFAULT_URL, connect
from quoth.merging.selection import Selection
from quoth.message import Gap, OnGap
from quoth.reader import log_gap
from quoth.spark.parallelism import context_of, parallelism
from quoth.spark.source.offset_planner import Ranges, share
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

_FRAME = "url: string, topic: string, log: string, after: long, until: long, records: long, bytes: long"


def topic_ranges(
    spark: SparkSession | SparkContext,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int | None = None,
    on_gap: OnGap | None = None,
) -> RDD[TopicRange]:
    """The records that topics hold now, as ranges: an RDD with one in each partition.

    topics: names, and patterns as `Client.read_many` takes them. url: the broker, as the driver and all
    workers reach it. after, since, until: as `Client.batches` takes them, for each of the topics. parts:
    about so many ranges in all, at least one for each topic with records; by default as many as Spark runs
    tasks at a time. on_gap: told of records behind `after` that are gone already; a warning in the log by
    default. Raises ``bad_request`` for a session of Spark Connect, which has no RDDs.
    """
    context: SparkContext | None = context_of(spark)
    if context is None:
        text = "a session of Spark Connect has no RDDs"
        raise error("bad_request", text, "topic_ranges_frame gives the ranges as a frame, which it has")
    wanted = context.defaultParallelism if parts is None else parts
    with connect(url) as broker:
        found = planned(broker, topics, after=after, since=since, until=until, parts=wanted, on_gap=on_gap)
    return context.parallelize(found, max(1, len(found)))


def topic_ranges_frame(
    spark: SparkSession,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int | None = None,
    on_gap: OnGap | None = None,
) -> DataFrame:
    """`topic_ranges` as a frame with a range in each partition; log: its id in hex.

    For `map_in_arrow` and `foreach_partition`. It needs no RDD: a session of Spark Connect has none.
    """
    from pyspark.sql import functions

    wanted = parallelism(spark) if parts is None else parts
    with connect(url) as broker:
        found = planned(broker, topics, after=after, since=since, until=until, parts=wanted, on_gap=on_gap)
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

    ranges: of `topic_ranges`, or of `topic_ranges_frame`. decode: what the iterator gives: ``arrow``, pyarrow
    RecordBatches with these columns; ``batches``, `quoth.Batch`es; ``messages``, `quoth.Message`s. Each of
    its records comes once, in order, or the task fails: with `NotFound` or `Damaged` if one is not there any
    more. Spark tries a failed task again, with the same range: effects come at least once, and exactly once
    where the range is kept with them. Whatever the function sends elsewhere has to be there when it returns:
    a worker may be killed right after.
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
    """What `function(range, record_batches)` makes of each range, as a frame of this schema.

    ranges: of `topic_ranges_frame`. All that is said of `foreach_partition` holds here.
    """

    def work(frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in _ranges_in(frames):
            yield from function(one, records_of(one, "arrow", columns))

    return ranges.mapInArrow(work, schema)


def planned(
    broker: Ranges,
    topics: str | Iterable[str],
    *,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int,
    on_gap: OnGap | None = None,
) -> list[TopicRange]:
    """The ranges of `topic_ranges`, topic by topic in the order of their names, and of their pointers."""
    if not 1 <= parts <= PARTS_MAX:
        raise error("bad_request", f"{parts} parts", f"from 1 to {PARTS_MAX}")
    begin, end = cursor(after, since, 0), last_before(until)
    counts = {name: broker.count(name, begin, end) for name in named(broker, topics)}
    records = sum(counted.records for counted in counts.values())
    found: list[TopicRange] = []
    for name, counted in counts.items():
        until_now = min(end, counted.newest)
        cut = split(broker, name, counted.log, begin, until_now, share(parts, counted.records, records))
        if begin and (counted.gone or sum(one.records for one in cut) < counted.records):
            first = max(counted.first, cut[0].after + 1) if cut else until_now + 1
            (on_gap or log_gap)(Gap(name, begin, first, -1, "trimmed"))
        found += cut
    return found


def _ranges_in(frames: Iterable[pa.RecordBatch]) -> Iterator[TopicRange]:
    """The ranges of a part of `topic_ranges_frame`."""
    for frame in frames:
        for row in frame.to_pylist():
            yield TopicRange(**{**row, "log": int(row["log"], 16)})


def named(broker: Ranges, topics: str | Iterable[str]) -> list[str]:
    """The topics that are meant, those of patterns as they are now.

    Raises `NotFound` ``unknown_topic`` for a name that is no topic's, and if no topic matches.
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
