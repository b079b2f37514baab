"""Batches and headers of the fast protocol with any claims, made from the documented layouts alone."""

from __future__ import annotations

import struct

from xxhash import xxh3_64_intdigest

PING = 2
CORRELATION = 0x0102_0304_0506_0708


def header(
    operation: int = PING,
    status: int = 0,
    *,
    magic: bytes = b"\xd1Q",
    version: int = 1,
    zeros: bytes = bytes(3),
    correlation: int = CORRELATION,
) -> bytes:
    """Return a header of the fast protocol, right or wrong."""
    return struct.pack("<2sBBB3sQ", magic, version, operation, status, zeros, correlation)


def forge(
    body: bytes,
    records: int,
    flags: int = 0,
    *,
    kind: int = 1,
    log_id: int = 0,
    base: int = 0,
    body_bytes: int | None = None,
    magic: bytes = b"QUOB",
    version: int = 1,
) -> bytes:
    """Return a batch with right checksums around any body and any claims, made from the documented layout."""
    claimed = len(body) if body_bytes is None else body_bytes
    seed = kind << 48 | flags << 32 | records
    checksum = xxh3_64_intdigest(body, seed)
    header = struct.pack(
        "<4sBBHIIQQQQQ", magic, version, kind, flags, claimed, records, base, 0, 0, 0, checksum
    )
    return header + struct.pack("<Q", xxh3_64_intdigest(header, log_id)) + body


def ints(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % 8)


ABC = padded(ints(0, 1, 2, 3) + b"abc")
"""The body of a batch of three records."""
