"""Publishes the rows of a partition from `foreachPartition`, without a driver that publishes for all tasks.

    def produce(rows):
        write_partition(rows, "orders", url="tcp://broker:5555", application="etl/orders", version=7)

    rdd.foreachPartition(produce)

Each partition is a transaction with the name APPLICATION/PARTITION and the version. So the topic has all of
its rows or none, and has them once, however often Spark runs the task: retries, speculation, a repeated
stage, a job that is started again with the same name and version.

A job that fails has written some partitions and not others, until it is started again. A partition is known
by its name, not by its rows: if a repetition may divide the rows differently, pass a `partition` that
identifies them, such as their range of pointers. Use `df.write.format("quoth")` to publish all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from pyspark import TaskContext

from quoth import Ack, Conflict, PartWriter
from quoth.client import DEFAULT_URL
from quoth.spark.connections import TIMEOUT_S, client
from quothwire.errors import error

ROWS = 1_000
"""Rows that are written at once."""

Row = bytes | tuple[bytes] | tuple[bytes, bytes | None] | tuple[bytes, bytes | None, Mapping[str, bytes]]
"""A value, or a value and a key, or a value, a key and headers."""


def write_partition(
    rows: Iterable[Row],
    topic: str,
    *,
    application: str,
    url: str = DEFAULT_URL,
    version: int = 0,
    partition: str | int | None = None,
    timeout: float = TIMEOUT_S,
) -> Ack:
    """Write the rows of a partition to a topic, whole and once; returns their pointers, count 0 for no rows.

    rows: values, or tuples of value, of value and key, or of value, key and headers. application: the name of
    the job. url: the broker, as all workers reach it. version: rises with each other write under that name.
    partition: identifies the rows; by default the number of the task's partition. Application and partition
    together are a name that the topic keeps, at most 1,000 a week: write few large partitions. timeout:
    seconds that the broker may be unreachable.

    Raises `RequestError` for invalid rows, else as `PartWriter` and `Transaction.publish` of `quoth`; then
    the task fails, and the next attempt writes all rows.
    """
    name = f"{application}/{_partition() if partition is None else partition}"
    transaction = client(url, timeout).transaction(topic, name, version)
    try:
        with transaction.part(0, timeout=timeout) as writer:
            _write(writer, rows)
            part = writer.finish()
    except Conflict as problem:
        if problem.code != "already_published":
            raise
        found = transaction.status()
        return Ack(found.first, found.last, found.count, "synced", True)
    return transaction.publish([part]) if part.batches else Ack(0, 0, 0, "synced", False)


def _write(writer: PartWriter, rows: Iterable[Row]) -> None:
    remaining = iter(rows)
    while block := [_fields(row) for row in islice(remaining, ROWS)]:
        values, keys, headers = (list(column) for column in zip(*block, strict=True))
        writer.write(
            values,
            key=None if all(key is None for key in keys) else keys,
            headers=headers if any(headers) else None,
        )


def _fields(row: Row) -> tuple[bytes, bytes | None, Mapping[str, bytes]]:
    """Value, key and headers of a row; the writer checks their types."""
    match row:
        case (value,):
            return value, None, {}
        case (value, key):
            return value, key, {}
        case (value, key, headers):
            return value, key, headers
        case bytes():
            return row, None, {}
    hint = "bytes, or a tuple of value, of value and key, or of value, key and headers"
    raise error("bad_request", f"{row!r:.100} is no row to write", hint)


def _partition() -> int:
    context = TaskContext.get()
    if context is None:
        raise error("bad_request", "this is no task of Spark", "say what the rows are: partition=...")
    return int(context.partitionId())
