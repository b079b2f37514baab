"""The sink of `format("quoth")`: writes the rows of a job or a micro-batch to a topic, all or none, and once.

Tasks stage their rows as parts of a transaction. The driver publishes the parts of the attempts that Spark
commits. A repetition has the same name of the transaction, so that publishing it twice has no effect:

    df.write          txnAppId and txnVersion, as in Delta; without them a random name, so that a job that is
                      started again writes again
    df.writeStream    the query's id, which its checkpoint keeps, and the number of the micro-batch

    task --stage--> broker             attempts that were killed, failed or were superseded leave nothing
    task --stage--> broker
       +-- message --> driver --publish--> broker           repeated until the answer is known

A driver that dies before publish has written nothing, one that dies after it everything. Spark repeats the
micro-batch then, and its tasks learn that it is published. Rows for several topics are a transaction in each
topic, published one after the other: each is whole and once, but they do not become visible together.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quoth import Conflict, NotFound, PartWriter, QuothError, StagedPart
from quoth.spark.connections import TIMEOUT_S, client
from quoth.spark.options import GivenOptions, url_of
from quoth.spark.sink.columns import BatchBuilder, ColumnNames, by_topic, names_of
from quoth.transaction import PUBLISH_TIMEOUT_S
from quothwire.errors import error
from quothwire.protocol.transaction import ONCE, VERSION_MAX, check_application

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAMES = ("url", "quoth.bootstrap.servers", "topic", "txnAppId", "txnVersion", "timeout")
_SPARKS = ("checkpointLocation", "path", "queryName")
"""Options of Spark, which it passes on."""
TOPICS_MAX = 64
"""Topics of one task: each has a connection and up to 16 MiB in flight."""
_SPREAD = (
    "repartition(N, 'topic'), one N for 32 topics; without a number Spark puts small ones together again"
)

_log = logging.getLogger("quoth.spark")


@dataclass(frozen=True)
class SinkTarget:
    """The parsed options of a sink. topic: None if a column names it. application, version: None by
    default."""

    url: str
    topic: str | None
    application: str | None
    version: int | None
    timeout: float
    names: ColumnNames


def parse(options: Mapping[str, str], schema: StructType, *, stream: bool) -> SinkTarget:
    """Parse the options of a sink, and the columns to write.

    Raises `RequestError` ``bad_request`` or ``bad_topic``, which names the option or the column.
    """
    given = GivenOptions(options)
    given.check_names((*NAMES, *_SPARKS))
    given.refuse(("path",), "a topic is no path")
    if stream:
        given.refuse(("txnVersion",), "the number of the micro-batch is the version")
    elif ("txnAppId" in given) != ("txnVersion" in given):
        raise error(
            "bad_request", "options txnAppId and txnVersion name a write together", "set both or none"
        )
    topic = given.topic("topic")
    return SinkTarget(
        url=url_of(given),
        topic=topic,
        application=check_application(given.text("txnAppId")) if "txnAppId" in given else None,
        version=_version(given),
        timeout=given.seconds("timeout", f"{TIMEOUT_S:g}s"),
        names=names_of(schema, topic_is_given=topic is not None),
    )


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Make the writer of a batch query. Raises as `parse`, and for a mode other than append."""
    _check_mode(overwrite)
    return BatchWriter(parse(options, schema, stream=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Make the writer of a stream. Raises as `parse`, and for the output mode complete."""
    _check_mode(overwrite)
    return StreamWriter(parse(options, schema, stream=True))


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The parts that a task has staged, by topic. published: topics in which the transaction is published."""

    application: str
    version: int
    parts: dict[str, StagedPart]
    published: tuple[str, ...] = ()


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one job. The driver and its tasks have copies of the same writer."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target
        self._application = target.application or f"{ONCE}spark-{secrets.token_hex(16)}"
        self._version = target.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task."""
        return stage(self._target, self._application, self._version, _partition(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged parts."""
        publish(self._target, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staged parts."""
        abort(self._target, self._application, self._version, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The copy that commits a micro-batch is not the one that writes it."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task of a micro-batch."""
        application = self._target.application or _property("sql.streaming.queryId")
        version = int(_property("streaming.sql.batchId"))
        staged = stage(self._target, application, version, _partition(), iterator)
        for topic in staged.published:
            _check_newest(self._target, topic, application, version)
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], _batch: int) -> None:
        """Publish the staged parts."""
        publish(self._target, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], _batch: int) -> None:
        """Remove the staged parts, if a message names the transaction.

        Otherwise they are removed when the micro-batch is repeated, or after a day.
        """
        for message in messages:
            if isinstance(message, StagedRows):
                abort(self._target, message.application, message.version, messages)
                return


def stage(
    target: SinkTarget, application: str, version: int, part: int, rows: Iterator[pa.RecordBatch]
) -> StagedRows:
    """Stage the rows of one task, one part in each topic. Nothing is published if it fails."""
    outlets: dict[str, _Outlet] = {}
    with ExitStack() as stack:
        at = client(target.url, target.timeout)
        for batch in rows:
            for topic, chosen in by_topic(batch, target.names, target.topic):
                if not chosen.num_rows:
                    continue
                if topic not in outlets:
                    if len(outlets) == TOPICS_MAX:
                        text = f"rows for more than {TOPICS_MAX} topics in one task"
                        raise error("too_large", text, _SPREAD)
                    writer = at.transaction(topic, application, version).part(part, timeout=target.timeout)
                    outlets[topic] = _Outlet(stack.enter_context(writer), target.names)
                if not outlets[topic].is_published:
                    outlets[topic].put(chosen)
        parts = {topic: outlet.finish() for topic, outlet in outlets.items()}
    filled = {topic: part for topic, part in parts.items() if part is not None and part.batches}
    published = tuple(topic for topic, outlet in outlets.items() if outlet.is_published)
    return StagedRows(application, version, filled, published)


def publish(target: SinkTarget, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Publish staged parts in the order of their partitions, one topic after the other."""
    staged = [message for message in messages if isinstance(message, StagedRows)]
    for topic in sorted({topic for message in staged for topic in message.parts}):
        parts = [message.parts[topic] for message in staged if topic in message.parts]
        application, version = staged[0].application, staged[0].version
        try:
            transaction = client(target.url, target.timeout).transaction(topic, application, version)
            transaction.publish(sorted(parts), timeout=max(PUBLISH_TIMEOUT_S, target.timeout))
        except QuothError as problem:
            look = f"`quoth transaction status {topic} {application} {version}` tells whether it is published"
            raise error(problem.code, problem.text, f"{problem.hint}; {look}") from None


def abort(
    target: SinkTarget, application: str, version: int, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Remove staged parts from all known topics. The broker removes the rest after a day."""
    staged = [message for message in messages if isinstance(message, StagedRows)]
    topics = {target.topic} if target.topic else {topic for message in staged for topic in message.parts}
    for topic in sorted(topics):
        try:
            client(target.url, target.timeout).transaction(topic, application, version).abort()
        except NotFound:
            continue  # no task has staged anything
        except QuothError as problem:
            _log.warning("topic %r: what was staged stays for a day: %s", topic, problem)


def _check_newest(target: SinkTarget, topic: str, application: str, version: int) -> None:
    """Raise `Conflict` for a micro-batch before the newest one: Spark repeats only that."""
    transaction = client(target.url, target.timeout).transaction(topic, application, version)
    newest = transaction.status().newest_version
    if newest > version:
        text = (
            f"topic {topic!r} has the micro-batches of {application!r} up to {newest}, and this is {version}"
        )
        raise error(
            "already_published", text, "a new checkpoint counts from 0 again and needs a new txnAppId"
        )


class _Outlet:
    """Stages the rows of one topic."""

    def __init__(self, writer: PartWriter, names: ColumnNames) -> None:
        self.is_published = False
        self._writer = writer
        self._builder = BatchBuilder(names)

    def put(self, rows: pa.RecordBatch) -> None:
        """Stage rows."""
        with self._unless_published():
            for batch in self._builder.put(rows):
                self._writer.append(*batch)

    def finish(self) -> StagedPart | None:
        """Return the part; None if the transaction is published already."""
        with self._unless_published():
            for batch in self._builder.rest():
                self._writer.append(*batch)
            return self._writer.finish()
        return None

    @contextmanager
    def _unless_published(self) -> Iterator[None]:
        try:
            yield
        except Conflict as problem:
            if problem.code != "already_published":
                raise
            self.is_published = True


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise error(
            "bad_request",
            "a topic cannot be overwritten, though Spark proposes it: records are appended",
            'write.mode("append"), or writeStream.outputMode("append") and foreachBatch for other modes; '
            "to begin anew, write into a new topic or trim this one",
        )


def _version(given: GivenOptions) -> int | None:
    if "txnVersion" not in given:
        return None
    text = given.text("txnVersion")
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= VERSION_MAX):
        raise given.wrong("txnVersion", "a whole number from 0 on, higher with every write")
    return int(text)


def _partition() -> int:
    return int(_task().partitionId())


def _property(name: str) -> str:
    """A local property that Spark sets for the tasks of a micro-batch."""
    found = _task().getLocalProperty(name)
    if found is None:
        raise error("internal", f"Spark does not tell {name}", "please report this with Spark's version")
    return str(found)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    return context
