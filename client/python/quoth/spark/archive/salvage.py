"""The records of a range among which some have headers that are none: one by one, where columns do not do.

Nobody but the producer looks at headers before a consumer does, so one record may have anything there. It is
told as a gap, and costs itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from quoth.batch import Batch
from quoth.message import Message
from quoth.spark.archive.parquet import SCHEMA
from quoth.spark.rangereader import RangeReader


def readable_records(reader: RangeReader) -> Iterator[pa.RecordBatch]:
    """The records of a range that can be read, with the columns of an archive."""
    for batch in reader.batches():
        rows = [_row(batch, message) for message in reader.readable(batch)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _row(batch: Batch, message: Message) -> dict[str, object]:
    return {
        "offset": message.pointer,
        "timestamp": message.pointer,
        "key": message.key,
        "value": message.value,
        "headers": [{"key": name, "value": value} for name, value in message.headers.items()] or None,
        "ordinal": batch.ordinal + message.pointer - batch.first,
    }
