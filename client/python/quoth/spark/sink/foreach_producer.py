"""Publishes the rows of a partition from `foreachPartition`, without a driver that publishes for all tasks.

    def produce(rows):
        write_partition(rows, "orders", url="tcp://broker:5555", application="etl/orders", version=7)

    rdd.foreachPartition(produce)

Each partition is a transaction with the name APPLICATION/PARTITION and the version. So the topic has all of
its rows or none, and has them once, however often Spark runs the task: retries, speculation, a repeated
stage, a job that is started again with the same name and version. A job that fails has written some
partitions and not others, until it is started again; `df.write.format("quoth")` publishes all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from pyspark import TaskContext

from quoth import Ack, Conflict
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
    key: str | None = None,
) -> Ack:
    """Write the rows of a partition to a topic, whole and once; returns their pointers, count 0 for no rows.

    rows: values, or tuples of value, of value and key, or of value, key and headers. application: the name of
    the job. url: the broker, as all workers reach it. version: rises with each other write under that name.
    partition: identifies the rows; by default the number of the task's partition. Rows are known by that name
    alone: if a repetition may divide them differently, pass one such as their range of pointers. Application
    and partition together are a name that the topic keeps, at most 1,000 a week: write few large partitions.
    timeout: seconds that the broker may be unreachable. key: the path of the worker's key file.

    Raises `RequestError` for invalid rows, else as `PartWriter` and `Transaction.publish` of `quoth`; then
    the task fails, and the next attempt writes all rows.
    """
    if partition is None:
        task = TaskContext.get()
        if task is None:
            raise error("bad_request", "this is no task of Spark", "say what the rows are: partition=...")
        partition = task.partitionId()
    transaction = client(url, timeout, key).transaction(topic, f"{application}/{partition}", version)
    try:
        with transaction.part(0, timeout=timeout) as writer:
            remaining = iter(rows)
            while block := [_fields(row) for row in islice(remaining, ROWS)]:
                values, keys, headers = (list(column) for column in zip(*block, strict=True))
                has_keys, has_headers = any(key is not None for key in keys), any(headers)
                writer.write(values, key=keys if has_keys else None, headers=headers if has_headers else None)
            part = writer.finish()
    except Conflict as problem:
        if problem.code != "already_published":
            raise
        found = transaction.status()
        return Ack(found.first, found.last, found.count, "synced", True)
    return transaction.publish([part]) if part.batches else Ack(0, 0, 0, "synced", False)


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
