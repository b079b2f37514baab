"""`format("quoth")`: topics as tables and streams, with the columns and the options of Spark's Kafka source.

Spark creates the reader of a query several times, in processes of its own: to plan it, and again in every
task. So a reader can be pickled and connects at its first request. Filters are not pushed down: Spark 4.3
keeps them for every later use of the same table, which then lacks records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import DataType, StructField, StructType

from quoth.client import DEFAULT_URL
from quoth.spark.options import NAMES, GivenOptions, Options, parse
from quoth.spark.sink import sink
from quoth.spark.source.arrow import TYPES
from quoth.spark.source.offset_planner import Offset, OffsetPlanner
from quoth.spark.source.partitioning import extents_between, extents_now, partitions
from quoth.spark.source.range_reader import DataLoss, RangeReader, TopicRange, refuse
from quoth.spark.source.ranges import context_of
from quoth.spark.source.stream_cursors import StreamCursors
from quoth.timestamps import Timestamp, as_pointer
from quothwire.errors import QuothError, error

COLUMNS: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in TYPES.items()}
"""Kafka's columns, and the number of a record in the log of its topic."""
USUAL = tuple(COLUMNS)[:7]
"""The columns without a schema: those of Kafka; with includeHeaders also the headers."""
NULLABLE = ("key", "headers")
_TASK_PROPERTIES = {"query": "sql.streaming.queryId", "batch": "streaming.sql.batchId"}
"""Properties of Spark's tasks that tell the query and its micro-batch."""
_SKIPPING = (
    "nothing was skipped, a checkpoint is as it was; with failOnDataLoss=false a query goes on behind them,"
    " and tells in the lossTopic, if there is one, what it skipped"
)

log = logging.getLogger("quoth.spark")


class QuothDataSource(DataSource):
    """Topics as a table: each record is a row, its pointer the offset, its pointer's time the timestamp."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "quoth"

    def schema(self) -> StructType:
        """The columns, unless the user gives a schema. Raises ``bad_request`` for unknown options."""
        given = GivenOptions(self.options)
        given.check_names(NAMES)
        names = USUAL + (("headers",) if given.flag("includeHeaders", False) else ())
        return StructType([StructField(name, COLUMNS[name]) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `DataSource.reader`."""
        return BatchReader(parse(self.options, stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """See `DataSource.streamReader`."""
        return StreamReader(parse(self.options, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `DataSource.writer`."""
        return sink.BatchWriter(sink.parse(self.options, schema, overwrite, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """See `DataSource.streamWriter`."""
        return sink.StreamWriter(sink.parse(self.options, schema, overwrite, stream=True))


class TopicReader:
    """Reads the ranges of a task. schema: any of `COLUMNS`, in any order; ``bad_request`` for others."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_schema(schema)
        self.options = options
        self.columns = pa.schema([pa.field(one.name, TYPES[one.name], one.nullable) for one in schema])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Raises `NotFound` or `Damaged` for lost records."""
        for one in partition.value or ():
            for records in RangeReader(one, self.lose, self.options.timeout).arrow(self.columns.names):
                yield pa.RecordBatch.from_arrays(records.columns, schema=self.columns)

    def lose(self, loss: DataLoss) -> None:
        """Raise `NotFound` or `Damaged`; or log a warning and publish the loss to the loss topic.

        The options `failOnDataLoss` and `lossTopic` decide. A task or a batch that is repeated reports it
        again.
        """
        if self.options.fail_on_data_loss:
            refuse(loss, _SKIPPING)
        log.warning("%s", loss)
        if self.options.loss_topic is not None:
            report, task = loss._asdict(), TaskContext.get()
            for name, property_name in _TASK_PROPERTIES.items():
                if task is not None and (text := task.getLocalProperty(property_name)):
                    report[name] = text
            content = json.dumps(report).encode()
            self.options.connect().publish(self.options.loss_topic, content, key=loss.topic.encode())

    def tasks(self, extents: Iterable[TopicRange]) -> list[InputPartition]:
        """Divide extents among tasks."""
        found = partitions(self.options.connect(), extents, self.options, self.lose)
        return [InputPartition(one) for one in found]


class BatchReader(TopicReader, DataSourceReader):
    """Reads the records that exist when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """The ranges of each task."""
        return self.tasks(extents_now(self.options.connect(), self.options, self.lose))


class StreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches."""

    @cached_property
    def _planner(self) -> OffsetPlanner:
        return OffsetPlanner(self.options.connect(), self.options, self.lose)

    @cached_property
    def _cursors(self) -> StreamCursors:
        return StreamCursors(self.options)

    @cached_property
    def _begin(self) -> dict[str, Any]:
        begun = self._planner.begin()
        self._cursors.check(begun.topics)
        return begun.to_json()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset at which a new query begins: the same at every call."""
        return self._begin

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the present ends of the topics."""
        self._planner.aim()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of records of a micro-batch; `latestOffset` limits bytes besides."""
        return ReadMaxRows(self.options.records_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` if there is nothing to read.

        Everything up to `start` is done. Spark calls `commit` for it only if there is a next micro-batch.
        """
        begin = Offset.from_json(start)
        end = self._planner.reach(begin, capped=not isinstance(limit, ReadAllAvailable))
        self._cursors.check(end.topics)
        self._cursors.commit(begin)
        return start if end is begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the topics at the last call of `latestOffset`."""
        return Offset(self._planner.latest).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of each task."""
        return self.tasks(extents_between(self.options.url, Offset.from_json(start), Offset.from_json(end)))

    def commit(self, end: dict[str, Any]) -> None:
        """Show at the broker, if there is a `group`, that a micro-batch is done; see `StreamCursors`."""
        self._cursors.commit(Offset.from_json(end))


def check_schema(schema: StructType) -> None:
    """Raise ``bad_request`` for columns that do not exist or have other types."""
    if not schema.fields:
        raise error("bad_request", "a schema without columns", f"name any of: {', '.join(COLUMNS)}")
    for field in schema:
        wanted = COLUMNS.get(field.name)
        if wanted is None or field.dataType != wanted:
            raise _unknown(f"{field.name} {field.dataType.simpleString()}")
        if not field.nullable and field.name in NULLABLE:
            text = f"column {field.name} NOT NULL: not every record has one"
            raise error("bad_request", text, "leave out NOT NULL")


def read_topic(
    spark: SparkSession,
    topics: str | Iterable[str],
    *,
    url: str = DEFAULT_URL,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    parts: int | None = None,
    columns: Sequence[str] | None = None,
    **options: str,
) -> DataFrame:
    """Read topics as a table, with the arguments of `Client.read`.

    topics: a name, or a list of names. A name with a comma is refused, because the option ``subscribe``
    separates names by commas; ``subscribePattern`` can match it. after: a cursor, exclusive; a topic that
    ends before it is an error. since, until: times; since is included, until is not. By default all records
    that exist when the table is used. parts: about the number of tasks (default: as many as run at once; on
    Spark Connect that of the option minPartitions). options: as in `spark.read.option`; minPartitions there
    replaces parts.

    columns: any of `COLUMNS`. Others are neither built nor passed to Java, but their bytes cross the network:
    one checksum covers all columns of a stored batch, so a broker sends the whole batch.

    Raises ``bad_request`` for a column that does not exist, for a name with a comma, and for parts together
    with minPartitions; other errors come when the table is used.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if "," in name:
            hint = "several topics are a list; one of this name can be read by option subscribePattern"
            raise error("bad_request", f"topic {name!r} has a comma, which ends a name here", hint)
    options |= {"url": url, "subscribe": ",".join(names)}
    if after:
        options["startingOffsets"] = json.dumps(dict.fromkeys(names, after + 1))
    for name, bound in (("since", since), ("until", until)):
        if bound is not None:
            options[name] = str(as_pointer(bound))
    if "minpartitions" not in map(str.lower, options):
        context = context_of(spark)
        wanted = parts or (context and context.defaultParallelism)
        if wanted:  # else the reader decides, on the server of Spark Connect
            options["minPartitions"] = str(wanted)
    elif parts:
        raise error("bad_request", "parts and minPartitions both say how many tasks", "set one of them")
    reader = spark.read.format(QuothDataSource.name()).options(**options)
    if columns is not None:
        for name in columns:
            if name not in COLUMNS:
                raise _unknown(name)
        reader = reader.schema(StructType([StructField(name, COLUMNS[name]) for name in columns]))
    return reader.load()


def _unknown(column: str) -> QuothError:
    possible = ", ".join(f"{name} {kind.simpleString()}" for name, kind in COLUMNS.items())
    return error("bad_request", f"column {column}: there is no such column", f"name any of: {possible}")
