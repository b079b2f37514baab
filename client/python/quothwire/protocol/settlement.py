"""Settlement of leased records: the payload of group_settle.

row, 40 bytes each, little-endian
0   kind            1     1 ack, 2 nack, 3 extend, 4 term, 5 release
1   zeros           7
8   first pointer   8
16  last pointer    8     the row is about all records from the first to the last pointer
24  token           8     of the lease; 0 in an ack: unknown
32  milliseconds    8     nack: before the next hand-out, counted from 1, 0 for the group's backoff
                          extend: that the lease lasts from now on, 0 for the group's lease
                          0 otherwise

Rows are in the order of their pointers and do not overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from quothwire.batch import Bytes
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_settings import LEASE_S_MAX

ROWS_MAX = 4_096
"""Rows of one request, 160 KiB."""
MILLISECONDS_MAX = int(LEASE_S_MAX * 1_000)
_ROW = struct.Struct("<B7sQQQQ")
_ZEROS = bytes(7)


class Settle(IntEnum):
    """The kind of a row."""

    ACK = 1
    NACK = 2
    EXTEND = 3
    TERM = 4
    RELEASE = 5


class Settlement(NamedTuple):
    """One row."""

    kind: Settle
    first: int
    last: int
    token: int = 0
    milliseconds: int = 0


_KINDS = {int(kind): kind for kind in Settle}


def encode_settlements(rows: Iterable[Settlement]) -> bytes:
    """Encode the payload of a request."""
    return b"".join(_ROW.pack(row[0], _ZEROS, *row[1:]) for row in rows)


def decode_settlements(payload: Bytes, count: int) -> list[Settlement]:
    """Decode the `count` rows of a payload.

    Raises `RequestError`: ``bad_request`` for another number of rows and for a row that is wrong,
    ``too_large`` above `ROWS_MAX` or `MILLISECONDS_MAX`, ``bad_pointer``.
    """
    if len(payload) != _ROW.size * count:
        text = f"the payload has {len(payload)} bytes, {count} rows have {_ROW.size * count}"
        raise error("bad_request", text, "nothing was done; rows tells how many the payload holds")
    if count > ROWS_MAX:
        raise error("too_large", f"{count} rows in one request, at most {ROWS_MAX}", "nothing was done")
    rows = [_checked(*row) for row in _ROW.iter_unpack(payload)]
    for row, following in pairwise(rows):
        if following.first <= row.last:
            text = f"a row to {row.last}, then one from {following.first}"
            raise error("bad_request", text, "nothing was done; rows do not overlap, the lowest comes first")
    return rows


def _checked(number: int, zeros: bytes, first: int, last: int, token: int, milliseconds: int) -> Settlement:
    kind = _KINDS.get(number)
    if kind is None or zeros != _ZEROS:
        raise error("bad_request", f"{number} is no kind of a row, or its zeros are none", "nothing was done")
    if last > POINTER_MAX:
        raise error("bad_pointer", f"a row ends at {last}", "nothing was done")
    if not 0 < first <= last:
        raise error("bad_request", f"a row from {first} to {last}", "nothing was done")
    if milliseconds > MILLISECONDS_MAX:
        text = f"{milliseconds} milliseconds in a row, at most {MILLISECONDS_MAX}"
        raise error("too_large", text, "nothing was done")
    if kind is not Settle.ACK and not token:
        raise error("bad_request", f"a row of kind {kind.name.lower()} names a lease by its token")
    return Settlement(kind, first, last, token, milliseconds)
