"""The sink of `format("quoth")`: writes the rows of a job or a micro-batch to a topic, all or none, and once.

Tasks stage their rows as parts of a transaction; the driver publishes the parts of the attempts that Spark
commits. What attempts staged that were killed, failed or were superseded is never published. A repetition has
the same name of the transaction, so that publishing it twice has no effect:

    df.write          txnAppId and txnVersion, as in Delta; without them a random name, so that a job that is
                      started again writes again
    df.writeStream    the query's id, which its checkpoint keeps, and the number of the micro-batch

A driver that dies before publish has written nothing, one that dies after it everything. Spark repeats the
micro-batch then, and its tasks learn that it is published. Rows for several topics are a transaction in each
topic, published one after the other: each is whole and once, but they do not become visible together.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quoth import Conflict, NotFound, PartWriter, QuothError, StagedPart
from quoth.spark.connections import client
from quoth.spark.options import GivenOptions
from quoth.spark.sink.columns import BatchBuilder, ColumnNames, by_topic, names_of
from quoth.transaction import PUBLISH_TIMEOUT_S, Transaction
from quothwire.columns import BatchColumns
from quothwire.errors import error
from quothwire.protocol.transaction import ONCE, VERSION_MAX, check_application

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAMES = ("url", "quoth.bootstrap.servers", "key", "topic", "txnAppId", "txnVersion", "timeout")
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
    """The options of a sink, and the columns to write.

    topic: None if a column names it. application, version: of the transaction, empty and 0 by default. key:
    the path of the key file, None for a broker without keys.
    """

    url: str
    topic: str | None
    application: str
    version: int
    timeout: float
    names: ColumnNames
    key: str | None

    def transaction(self, topic: str) -> Transaction:
        """The transaction of this write in a topic."""
        return client(self.url, self.timeout, self.key).transaction(topic, self.application, self.version)


def parse(options: Mapping[str, str], schema: StructType, overwrite: bool, *, stream: bool) -> SinkTarget:
    """Parse the options of a sink, and the columns to write.

    Raises `RequestError` ``bad_request`` or ``bad_topic``, which names the option or the column, and for a
    mode other than append.
    """
    if overwrite:
        raise error(
            "bad_request",
            "a topic cannot be overwritten, though Spark proposes it: records are appended",
            'write.mode("append"), or writeStream.outputMode("append") and foreachBatch for other modes; '
            "to begin anew, write into a new topic or trim this one",
        )
    given = GivenOptions(options)
    given.check_names((*NAMES, *_SPARKS))
    given.refuse(("path",), "a topic is no path")
    if stream:
        given.refuse(("txnVersion",), "the number of the micro-batch is the version")
    elif ("txnAppId" in given) != ("txnVersion" in given):
        text = "options txnAppId and txnVersion name a write together"
        raise error("bad_request", text, "set both or none")
    topic = given.topic("topic")
    versions, hint = range(VERSION_MAX + 1), "a whole number from 0 on, higher with every write"
    return SinkTarget(
        url=given.url(),
        topic=topic,
        application=check_application(given.text("txnAppId")) if "txnAppId" in given else "",
        version=given.number("txnVersion", 0, versions, hint),
        timeout=given.timeout(),
        names=names_of(schema, topic_is_given=topic is not None),
        key=given.key(),
    )


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The parts of a write that a task has staged, by topic. published: topics in which it is published."""

    write: SinkTarget
    parts: dict[str, StagedPart]
    published: tuple[str, ...] = ()


Messages = Sequence[WriterCommitMessage | None]
"""Of the tasks of a write, `StagedRows` of those that succeeded."""


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one job. The driver and its tasks have copies of the same writer."""

    def __init__(self, target: SinkTarget) -> None:
        random = f"{ONCE}spark-{secrets.token_hex(16)}"
        self._target = replace(target, application=target.application or random)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task."""
        return stage(self._target, _task().partitionId(), iterator)

    def commit(self, messages: Messages) -> None:
        """Publish the staged parts."""
        publish(messages)

    def abort(self, messages: Messages) -> None:
        """Remove the staged parts."""
        abort(self._target, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The copy that commits a micro-batch is not the one that writes it."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task of a micro-batch."""
        application = self._target.application or _property("sql.streaming.queryId")
        version = int(_property("streaming.sql.batchId"))
        target = replace(self._target, application=application, version=version)
        staged = stage(target, _task().partitionId(), iterator)
        for topic in staged.published:
            _check_newest(target, topic)
        return staged

    def commit(self, messages: Messages, _batch: int) -> None:
        """Publish the staged parts."""
        publish(messages)

    def abort(self, messages: Messages, _batch: int) -> None:
        """Remove the staged parts, if a message names the transaction.

        Otherwise they are removed when the micro-batch is repeated, or after a day.
        """
        for staged in _staged(messages)[:1]:
            abort(staged.write, messages)


def stage(write: SinkTarget, part: int, rows: Iterator[pa.RecordBatch]) -> StagedRows:
    """Stage the rows of one task, one part in each topic. Nothing is published if it fails."""
    outlets: dict[str, _Outlet] = {}
    with ExitStack() as stack:
        for batch in rows:
            for topic, chosen in by_topic(batch, write.names, write.topic):
                if not chosen.num_rows:
                    continue
                if topic not in outlets:
                    if len(outlets) == TOPICS_MAX:
                        text = f"rows for more than {TOPICS_MAX} topics in one task"
                        raise error("too_large", text, _SPREAD)
                    writer = write.transaction(topic).part(part, timeout=write.timeout)
                    outlets[topic] = _Outlet(stack.enter_context(writer), write.names)
                outlets[topic].put(chosen)
        parts = {topic: outlet.finish() for topic, outlet in outlets.items()}
    filled = {topic: part for topic, part in parts.items() if part is not None and part.batches}
    return StagedRows(write, filled, tuple(topic for topic, part in parts.items() if part is None))


def publish(messages: Messages) -> None:
    """Publish staged parts in the order of their partitions, one topic after the other."""
    staged = _staged(messages)
    for topic in sorted({topic for message in staged for topic in message.parts}):
        write = staged[0].write
        parts = sorted(message.parts[topic] for message in staged if topic in message.parts)
        try:
            write.transaction(topic).publish(parts, timeout=max(PUBLISH_TIMEOUT_S, write.timeout))
        except QuothError as problem:
            status = f"`quoth transaction status {topic} {write.application} {write.version}`"
            hint = f"{problem.hint}; {status} tells whether it is published"
            raise error(problem.code, problem.text, hint) from None


def abort(write: SinkTarget, messages: Messages) -> None:
    """Remove staged parts from all known topics. The broker removes the rest after a day."""
    topics = {topic for message in _staged(messages) for topic in message.parts}
    for topic in sorted({write.topic} if write.topic else topics):
        try:
            write.transaction(topic).abort()
        except NotFound:
            continue  # no task has staged anything
        except QuothError as problem:
            _log.warning("topic %r: what was staged stays for a day: %s", topic, problem)


def _staged(messages: Messages) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]


def _check_newest(write: SinkTarget, topic: str) -> None:
    """Raise `Conflict` for a micro-batch before the newest one: Spark repeats only that."""
    newest = write.transaction(topic).status().newest_version
    if newest > write.version:
        which = f"the micro-batches of {write.application!r} up to {newest}, and this is {write.version}"
        hint = "a new checkpoint counts from 0 again and needs a new txnAppId"
        raise error("already_published", f"topic {topic!r} has {which}", hint)


class _Outlet:
    """Stages the rows of one topic, unless the transaction is published already."""

    def __init__(self, writer: PartWriter, names: ColumnNames) -> None:
        self._writer = writer
        self._builder = BatchBuilder(names)
        self._is_published = False

    def put(self, rows: pa.RecordBatch) -> None:
        """Stage rows."""
        if not self._is_published:
            with self._unless_published():
                self._append(self._builder.put(rows))

    def finish(self) -> StagedPart | None:
        """Return the part; None if the transaction is published already."""
        with self._unless_published():
            self._append(self._builder.rest())
            return self._writer.finish()
        return None

    def _append(self, batches: Iterable[BatchColumns]) -> None:
        for batch in batches:
            self._writer.append(*batch)

    @contextmanager
    def _unless_published(self) -> Iterator[None]:
        try:
            yield
        except Conflict as problem:
            if problem.code != "already_published":
                raise
            self._is_published = True


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
