"""The columns of a batch as buffers in Arrow's layout, without a step for each record.

`encode_columns` joins buffers to a batch, where `quothwire.batch.encode` takes records and costs 100 ns each.
`columns_of` cuts a stored batch into its buffers. `part_of` makes a batch of some of its records.
"""

from __future__ import annotations

import sys
from array import array
from itertools import chain
from typing import NamedTuple

from quothwire.batch import (
    HEADER_BYTES,
    Bytes,
    Flag,
    Header,
    assembled,
    body_of,
    fixed_bytes,
    parse_header,
    stamp,
)
from quothwire.errors import error


class Column(NamedTuple):
    """One column of records, each part of it a buffer of bytes.

    offsets: int32[records + 1], little-endian, from 0 to the length of the heap. validity: a bit a record,
    1 where there is a value, least significant first; empty: no value is missing. A missing value has no
    bytes in the heap.
    """

    offsets: Bytes
    heap: Bytes
    validity: Bytes = b""


class BatchColumns(NamedTuple):
    """The columns of a batch; keys and headers are None where it has none."""

    values: Column
    keys: Column | None
    headers: Column | None


def encode_columns(
    values: Column,
    keys: Column | None = None,
    headers: Column | None = None,
    *,
    producer: int = 0,
    sequence: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode the same batch as `quothwire.batch.encode` does from the records of these columns.

    headers: encoded ones, from `encode_headers`. Only keys may be missing. Raises `RequestError` as `encode`
    does, and ``bad_batch`` where a column's offsets do not lead from 0 to the end of its heap.
    `quothwire.batch.check`, and so the broker, finds offsets that fall in between.
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
    return assembled(records, size, sections, producer, sequence, flags)


def columns_of(header: Header, batch: memoryview) -> BatchColumns:
    """Cut a batch whose checksums match into its columns, without a copy.

    Does not check that offsets rise between the first and the last one. Raises `RequestError` ``bad_batch``
    where the columns do not fit into the batch.
    """
    records, flags = header.records, header.flags
    body = batch[HEADER_BYTES:]
    heap, width = fixed_bytes(records, flags), 4 * (records + 1)
    if heap > len(body):
        raise error("bad_batch", f"{records} records do not fit into a body of {len(body)} bytes")
    start = 0
    found: list[Column | None] = []
    for present in (True, flags & Flag.KEYS, flags & Flag.HEADERS):
        if not present:
            found.append(None)
            continue
        offsets = body[start : start + width]
        size = int.from_bytes(offsets[-4:], "little", signed=True)
        if not 0 <= size <= len(body) - heap:
            raise error("bad_batch", f"a column of {size} bytes in a body of {len(body)}")
        found.append(Column(offsets, body[heap : heap + size]))
        start, heap = start + width, heap + size
    values, keys, headers = found
    assert values is not None
    if keys is not None:
        keys = keys._replace(validity=body[start : fixed_bytes(records, flags)])
    return BatchColumns(values, keys, headers)


def part_of(header: Header, batch: Bytes, start: int, end: int, log_id: int) -> bytes:
    """Make a batch of the records from `start` to before `end` of a stored one, as its log would store it.

    They keep their pointers and ordinals. It has no producer. Raises `RequestError` ``bad_batch`` for a batch
    that does not check.
    """
    body_of(batch, header)
    values, keys, headers = columns_of(header, memoryview(batch))
    columns = [
        _part(column, start, end) if column is not None else None for column in (values, keys, headers)
    ]
    assert columns[0] is not None, "a batch has values"
    made = encode_columns(columns[0], columns[1], columns[2])
    own = parse_header(made, 0).placed(header.base + start, header.ordinal + start)
    return stamp(own, log_id) + made[HEADER_BYTES:]


def _part(column: Column, start: int, end: int) -> Column:
    offsets = array("i", bytes(column.offsets[4 * start : 4 * (end + 1)]))
    if sys.byteorder == "big":
        offsets.byteswap()
    low, high = offsets[0], offsets[-1]
    moved = array("i", [offset - low for offset in offsets])
    if sys.byteorder == "big":
        moved.byteswap()
    bits = int.from_bytes(column.validity[start // 8 : end // 8 + 1], "little") >> start % 8
    kept = (bits & ((1 << (end - start)) - 1)).to_bytes((end - start + 63) // 64 * 8, "little")
    return Column(moved.tobytes(), column.heap[low:high], kept if len(column.validity) else b"")


def _check(column: Column, records: int) -> None:
    offsets, heap, _ = column
    if len(offsets) != 4 * (records + 1):
        raise error("bad_batch", f"{len(offsets)} bytes of offsets where there are {records} values")
    if any(offsets[:4]) or int.from_bytes(offsets[-4:], "little") != len(heap):
        raise error("bad_batch", f"offsets that do not lead from 0 to {len(heap)}, the bytes of their heap")


def _bitmap(validity: Bytes, records: int) -> bytes:
    """Return the validity as a bitmap in steps of 8 bytes, with zeros behind the last record."""
    if len(validity) and 8 * len(validity) < records:
        raise error("bad_batch", f"a bitmap of {len(validity)} bytes for {records} records")
    whole = (1 << max(records, 0)) - 1
    bits = int.from_bytes(validity, "little") & whole if len(validity) else whole
    return bits.to_bytes((records + 63) // 64 * 8, "little")
