"""Producing from `foreachPartition`, where there is no driver that publishes what all tasks have staged.

    def produce(rows):
        write_partition(rows, "orders", url="tcp://broker:5555", application="etl/orders", version=7)

    rdd.foreachPartition(produce)

Each partition is a transaction of its own, under the name APPLICATION/PARTITION and the version. So it is in
the topic whole or not at all, and once, however often Spark runs the task: retries, speculation, a stage that
is run again, a job that is started again with the same name and version.

What is not: a job that fails in the middle has written some partitions and not the others, until it is
started again. And a partition is known by its name, not by what is in it: where a repetition may cut the
rows otherwise, let `partition` say what they are, like the range of pointers that they were made of. What
has to be in the topic all together goes through `df.write.format("quoth")`.
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
"""Taken together, so that little is done for each."""

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
    """Write the rows of a partition to a topic, whole and once; returns where they are, count 0 for none.

    rows: values, or tuples of value, of value and key, or of value, key and headers. application: whose rows
    they are. url: the broker, as all workers reach it. version: rises with whatever else is written under
    that name. partition: which rows they are, the number of the task's partition unless it is given.
    Application and partition together are a name that the topic remembers, and it remembers 1,000 a week:
    write few large partitions. timeout: seconds that the broker may be away.

    Raises `RequestError` for rows that are none, else what `PartWriter` and `Transaction.publish` of `quoth`
    raise: then the task fails, and the next attempt begins anew.
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
    while cells := [_cells(row) for row in islice(remaining, ROWS)]:
        values, keys, headers = (list(column) for column in zip(*cells, strict=True))
        writer.write(
            values,
            key=None if all(key is None for key in keys) else keys,
            headers=headers if any(headers) else None,
        )


def _cells(row: Row) -> tuple[bytes, bytes | None, Mapping[str, bytes]]:
    """Value, key and headers of a row; what is wrong with them the writer says."""
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
