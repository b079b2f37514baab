"""Checks of a new batch, beyond its layout, which are made once, before a log stores it.

`quothwire.batch.check` accepts a batch whose checksums match and whose offsets rise, and readers need no
more. These checks find mistakes of a producer, which learns of them at once. Logs may hold such batches from
brokers that did not check, so readers, recovery and backups accept them.
"""

from __future__ import annotations

from itertools import compress
from operator import sub

from quothwire.batch import HEADER_BYTES, Bytes, Flag, Header, decode, encode, fixed_bytes, offsets_of
from quothwire.errors import error
from quothwire.headers import check_header_column, problem_of, readable_headers
from quothwire.native import compiled

_COUNTED = Flag.SPARSE | Flag.ORDINAL
_DIGITS = bytes(code == ord("1") for code in range(256))
"""Translates the digits of a binary number to the numbers 0 and 1."""


@compiled("quothwire._native.batch")
def check_new(batch: Bytes, header: Header) -> None:
    """Check the numbering, keys and headers of a whole batch with this header.

    Raises ``bad_batch`` that names the record. Costs nothing without keys and headers. In Python, keys cost
    70 ns a record if some records have none; see `check_header_column` for headers.
    """
    flags = header.flags
    if flags & (_COUNTED | Flag.START):
        check_numbering(header)
    if not flags & (Flag.KEYS | Flag.HEADERS):
        return
    body = memoryview(batch)[HEADER_BYTES:]
    offsets = offsets_of(header, body)
    if flags & Flag.KEYS:
        _check_keys(header, body, offsets[1])
    if flags & Flag.HEADERS:
        begin = fixed_bytes(header.records, flags) + sum(column[-1] for column in offsets[:-1])
        check_header_column(bytes(body[begin : begin + offsets[-1][-1]]), offsets[-1])


def repaired(raw: Bytes, log_id: int) -> tuple[bytes, list[int]]:
    """Encode a stored batch again, so that a broker accepts it as a new one, without a producer.

    Leaves out what no reader gets: bytes of null keys, bits behind the records, and headers that cannot be
    decoded. Returns the rows of the records that had such headers, too. Raises ``bad_batch`` for a batch that
    is not whole.
    """
    _, values, keys, headers = decode(raw, log_id)
    wrong = [row for row, one in enumerate(headers or ()) if problem_of(readable_headers(one))]
    for row in wrong:
        assert headers is not None
        headers[row] = b""
    return encode(values, keys, headers), wrong


def check_published(header: Header) -> None:
    """Check that a published batch has no pointer and no ordinal yet, and no part of a producer's identity.

    Raises ``bad_batch``.
    """
    if header.base or header.ordinal:
        raise error("bad_batch", "a producer leaves pointer and ordinal to the log")
    if bool(header.producer) != bool(header.sequence):
        raise error("bad_batch", "a producer id and a sequence go together")
    if header.flags & Flag.TRANSACTION:
        raise error("bad_batch", "the batches of a transaction are staged, then published together")


def check_numbering(header: Header) -> None:
    """Check that the flags of a producer's numbering fit together. Raises ``bad_batch``."""
    flags = header.flags
    if flags & Flag.START and not flags & _COUNTED:
        raise error("bad_batch", "START without SPARSE or ORDINAL: a dense producer begins with sequence 1")
    if flags & _COUNTED and not header.producer:
        raise error("bad_batch", "SPARSE or ORDINAL without a producer id")


def _check_keys(header: Header, body: memoryview, offsets: list[int]) -> None:
    """Check the validity of keys: a bit a record, and no bytes where there is no key."""
    records = header.records
    end = fixed_bytes(records, header.flags)
    present = int.from_bytes(body[end - (records + 63) // 64 * 8 : end], "little")
    if present >> records:
        raise error("bad_batch", f"validity bits beyond the last of {records} records are not 0")
    absent = present ^ ((1 << records) - 1)
    if not absent or not offsets[-1]:
        return
    marks = f"{absent:0{records}b}".encode()[::-1].translate(_DIGITS)
    if any(compress(map(sub, offsets[1:], offsets), marks)):
        row = next(i for i, mark in enumerate(marks) if mark and offsets[i + 1] > offsets[i])
        which = f"record {row} of {records}, counted from 0"
        raise error("bad_batch", f"{which}: no key, and {offsets[row + 1] - offsets[row]} bytes of one")
