"""Columns as batches: what lies in Arrow's layout already goes into a batch as it is.

`quothwire.batch.encode` takes records and costs 100 ns each; here whole buffers are joined.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from quothwire.batch import Bytes, Flag, assembled, fixed_bytes
from quothwire.errors import error


class Column(NamedTuple):
    """One column of records, each part of it a buffer of bytes.

    offsets: int32[records + 1], little-endian, from 0 to the length of the heap. validity: a bit a record,
    1 where there is something, least significant first; empty: nothing is missing. What is missing has no
    bytes in the heap.
    """

    offsets: Bytes
    heap: Bytes
    validity: Bytes = b""


def encode_columns(
    values: Column,
    keys: Column | None = None,
    headers: Column | None = None,
    *,
    producer: int = 0,
    sequence: int = 0,
    flags: int = 0,
) -> bytes:
    """The batch that `quothwire.batch.encode` makes of the same records, without a step for each of them.

    headers: encoded ones, from `encode_headers`. Only keys may be missing. Raises `RequestError` as `encode`
    does, and ``bad_batch`` where a column's offsets do not lead from 0 to the end of its heap; that they rise
    in between `quothwire.batch.check` sees, as the broker does.
    """
    records = len(values.offsets) // 4 - 1
    columns, bitmap = [values], b""
    if keys is not None:
        flags |= Flag.KEYS
        columns.append(keys)
        bitmap = _bitmap(keys.validity, records)
    if headers is not None:
        flags |= Flag.HEADERS
        columns.append(headers)
    for column in columns:
        _check(column, records)
    size = fixed_bytes(records, flags) + sum(len(column.heap) for column in columns)
    sections = chain((column.offsets for column in columns), [bitmap], (column.heap for column in columns))
    return assembled(records, size, sections, producer, sequence, int(flags))


def _check(column: Column, records: int) -> None:
    offsets, heap, _ = column
    if len(offsets) != 4 * (records + 1):
        raise error("bad_batch", f"{len(offsets)} bytes of offsets where there are {records} values")
    if any(offsets[:4]) or int.from_bytes(offsets[-4:], "little") != len(heap):
        raise error("bad_batch", f"offsets that do not lead from 0 to {len(heap)}, the bytes of their heap")


def _bitmap(validity: Bytes, records: int) -> bytes:
    """A bitmap in steps of 8 bytes, with zeros behind the last record."""
    if len(validity) and 8 * len(validity) < records:
        raise error("bad_batch", f"a bitmap of {len(validity)} bytes for {records} records")
    whole = (1 << max(records, 0)) - 1
    bits = int.from_bytes(validity, "little") & whole if len(validity) else whole
    return bits.to_bytes((records + 63) // 64 * 8, "little")
