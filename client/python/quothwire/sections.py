"""Where the columns of a stored batch lie, for who takes them as they are instead of record by record."""

from __future__ import annotations

from typing import NamedTuple

from quothwire.batch import HEADER_BYTES, HEADERS, KEYS, Header, fixed_bytes
from quothwire.errors import error


class Section(NamedTuple):
    """One column. offsets: int32[records + 1], little-endian, in the heap; the last one was looked at."""

    offsets: memoryview
    heap: memoryview


class Sections(NamedTuple):
    """The columns of a batch; keys and headers are None where it has none.

    validity: a bit a record, 1 where it has a key, least significant first; empty without keys.
    """

    values: Section
    keys: Section | None
    headers: Section | None
    validity: memoryview


def sections(header: Header, batch: memoryview) -> Sections:
    """Cut a batch whose checksums match into its columns. That offsets rise in between is left to check.

    Raises `RequestError` ``bad_batch`` where they do not fit into the batch.
    """
    records, flags = header.records, header.flags
    body = batch[HEADER_BYTES:]
    heap, width = fixed_bytes(records, flags), 4 * (records + 1)
    if heap > len(body):
        raise error("bad_batch", f"{records} records do not fit into a body of {len(body)} bytes")
    start = 0
    found: list[Section | None] = []
    for present in (True, flags & KEYS, flags & HEADERS):
        if not present:
            found.append(None)
            continue
        offsets = body[start : start + width]
        size = int.from_bytes(offsets[-4:], "little", signed=True)
        if not 0 <= size <= len(body) - heap:
            raise error("bad_batch", f"a column of {size} bytes in a body of {len(body)}")
        found.append(Section(offsets, body[heap : heap + size]))
        start, heap = start + width, heap + size
    values, keys, headers = found
    assert values is not None
    return Sections(values, keys, headers, body[start : fixed_bytes(records, flags)] if keys else body[:0])
