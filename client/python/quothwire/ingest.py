"""What a new batch has to be, beyond what makes it one: checked once, before a log stores it.

A batch whose checksums match and whose offsets rise is whole, `quothwire.batch.check`, and readers take it as
it is. What is checked here are mistakes of its producer, which it learns at once. Logs may hold such
batches from brokers that did not check; a reader, a recovery or a backup does not refuse them.
"""

from __future__ import annotations

from itertools import compress
from operator import sub

from quothwire.batch import HEADERS, KEYS, Bytes, Flag, Header, Parsed, decode, encode, fixed_bytes
from quothwire.errors import error
from quothwire.headers import check_header_column, problem_of, readable_headers

_START, _COUNTED, _TRANSACTION = int(Flag.START), int(Flag.SPARSE | Flag.ORDINAL), int(Flag.TRANSACTION)
_NUMBERED = _START | _COUNTED
_DIGITS = bytes(code == ord("1") for code in range(256))
"""Makes numbers of the digits of a binary number."""


def check_new(parsed: Parsed) -> None:
    """Check what a producer says in a batch that is whole. Raises ``bad_batch``, naming the record.

    Costs nothing without keys and headers. Keys cost 70 ns a record if some records have none, headers as
    `check_header_column` says.
    """
    header, body, offsets = parsed
    flags = header.flags
    if flags & _NUMBERED:
        check_numbering(header)
    if flags & KEYS:
        _check_keys(header, body, offsets[1])
    if flags & HEADERS:
        begin = fixed_bytes(header.records, flags) + offsets[0][-1] + (offsets[1][-1] if flags & KEYS else 0)
        check_header_column(bytes(body[begin : begin + offsets[-1][-1]]), offsets[-1])


def repaired(raw: Bytes, log_id: int) -> tuple[bytes, list[int]]:
    """A stored batch as a new one may be, without a producer: what readers get of it, and nothing besides.

    Bytes of null keys, bits behind the records and headers that cannot be decoded are left out; the rows of
    the records that had such headers are the second result. Raises ``bad_batch`` for one that is not whole.
    """
    _, values, keys, headers = decode(raw, log_id)
    wrong = [row for row, one in enumerate(headers or ()) if problem_of(readable_headers(one))]
    for row in wrong:
        assert headers is not None
        headers[row] = b""
    return encode(values, keys, headers), wrong


def check_published(header: Header) -> None:
    """Check that the header of a published batch leaves to the log what the log decides.

    Raises ``bad_batch``.
    """
    if header.base or header.ordinal:
        raise error("bad_batch", "a producer leaves pointer and ordinal to the log")
    if bool(header.producer) != bool(header.sequence):
        raise error("bad_batch", "a producer id and a sequence go together")
    if header.flags & _TRANSACTION:
        raise error("bad_batch", "the batches of a transaction are staged, then published together")


def check_numbering(header: Header) -> None:
    """Check that the flags of a producer's numbering make sense together. Raises ``bad_batch``."""
    flags = header.flags
    if flags & _START and not flags & _COUNTED:
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
