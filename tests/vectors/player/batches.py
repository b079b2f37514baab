"""Batches as client/PROTOCOL.md draws them: encoded for fetches, decoded from publishes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgpack
from xxhash import xxh3_64_intdigest

from player.deviation import Deviation

KEYS, HEADERS = 1, 2
HEADER = struct.Struct("<4sBBHIIQQQQQQ")


def unhex(digits: str | None) -> bytes | None:
    """Return hex as bytes, and None for null."""
    return None if digits is None else bytes.fromhex(digits)


def encode(described: dict[str, Any], log: int) -> bytes:
    """Encode a stored batch from its description in a session.

    base, ordinal, producer, sequence: 0 by default. cells: the stored bytes of the records' headers, in place
    of `headers`. log: the id of another log than the reply's. flip: the offset of a byte that is damaged.
    """
    values = [bytes.fromhex(value) for value in described["values"]]
    keys = described.get("keys") and [unhex(key) for key in described["keys"]]
    cells = described.get("cells") and [bytes.fromhex(cell) for cell in described["cells"]]
    if "headers" in described:
        cells = [encode_headers(headers) for headers in described["headers"]]
    body = _body(values, keys, cells)
    flags = int(described.get("flags", 0)) | (KEYS if keys else 0) | (HEADERS if cells else 0)
    numbers = (int(described.get(name, 0)) for name in ("base", "ordinal", "producer", "sequence"))
    check = xxh3_64_intdigest(body, 1 << 48 | flags << 32 | len(values))
    header = HEADER.pack(b"QUOB", 1, 1, flags, len(body), len(values), *numbers, check, 0)[:56]
    seed = int(described.get("log", log))
    whole = bytearray(header + struct.pack("<Q", xxh3_64_intdigest(header, seed)) + body)
    if "flip" in described:
        whole[described["flip"]] ^= 0xFF
    return bytes(whole)


def encode_headers(headers: dict[str, str]) -> bytes:
    """Encode the headers of a record; no bytes for none."""
    raw: bytes = msgpack.packb({name: bytes.fromhex(value) for name, value in headers.items()})
    return raw if headers else b""


def _body(values: list[bytes], keys: list[bytes | None] | None, cells: list[bytes] | None) -> bytes:
    heaps: list[Sequence[bytes | None]] = [column for column in (values, keys, cells) if column]
    offsets = b"".join(map(_offsets, heaps))
    bits = sum(1 << row for row, key in enumerate(keys or ()) if key is not None)
    bitmap = bits.to_bytes((len(values) + 63) // 64 * 8, "little") if keys else b""
    body = offsets + bitmap + b"".join(item or b"" for heap in heaps for item in heap)
    return body + bytes(-len(body) % 8)


def _offsets(items: Sequence[bytes | None]) -> bytes:
    ends = [0]
    for item in items:
        ends.append(ends[-1] + len(item or b""))
    return struct.pack(f"<{len(ends)}i", *ends)


def decode(raw: bytes) -> dict[str, Any]:
    """Decode a batch that a producer sent, as a session describes it. Raises `Deviation` for a wrong one."""
    if len(raw) < HEADER.size:
        raise Deviation(f"a batch of {len(raw)} bytes, which has no header")
    magic, version, kind, flags, size, records, *numbers, body_check, header_check = HEADER.unpack_from(raw)
    base, ordinal, producer, sequence = numbers
    body = raw[HEADER.size :]
    for name, found, expected in (
        ("magic", magic, b"QUOB"),
        ("version", version, 1),
        ("kind", kind, 1),
        ("number of body bytes", size, len(body)),
        ("base pointer", base, 0),
        ("base ordinal", ordinal, 0),
        ("header checksum", header_check, xxh3_64_intdigest(raw[:56], 0)),
        ("body checksum", body_check, xxh3_64_intdigest(body, kind << 48 | flags << 32 | records)),
    ):
        if found != expected:
            raise Deviation(f"a batch whose {name} is {found!r}, where {expected!r} is right")
    columns = _columns(body, records, flags)
    return {"producer": producer, "sequence": sequence, "flags": flags & ~(KEYS | HEADERS), **columns}


def _columns(body: bytes, records: int, flags: int) -> dict[str, Any]:
    """Return values, keys and headers. Raises `Deviation` unless the body is exactly as it is drawn."""
    count = 1 + bool(flags & KEYS) + bool(flags & HEADERS)
    width = records + 1
    words = (records + 63) // 64 if flags & KEYS else 0
    if len(body) < 4 * width * count + 8 * words or not records:
        raise Deviation(f"a body of {len(body)} bytes for {records} records")
    numbers = struct.unpack_from(f"<{width * count}i", body)
    place = 4 * width * count
    bits = int.from_bytes(body[place : place + 8 * words], "little")
    place += 8 * words
    columns = []
    for column in range(count):
        ends = numbers[width * column : width * (column + 1)]
        if ends[0] or any(begin > end for begin, end in pairwise(ends)):
            raise Deviation("a batch whose offsets do not begin at 0 or fall")
        columns.append([body[place + begin : place + end] for begin, end in pairwise(ends)])
        place += ends[-1]
    if len(body) < place or body[place:] != bytes(-place % 8):
        raise Deviation("a batch whose body does not end with its heaps and zeros up to a multiple of 8")
    keys = columns[1] if flags & KEYS else [b""] * records
    cells = columns[-1] if flags & HEADERS else [b""] * records
    if bits >> records or any(key and not bits >> row & 1 for row, key in enumerate(keys)):
        raise Deviation("a batch with a bit behind its last record, or with the bytes of a key that is null")
    return {
        "values": [value.hex() for value in columns[0]],
        "keys": [key.hex() if bits >> row & 1 else None for row, key in enumerate(keys)],
        "headers": [_headers(cell) for cell in cells],
    }


def _headers(cell: bytes) -> dict[str, str]:
    try:
        found = msgpack.unpackb(cell) if cell else {}
    except (ValueError, msgpack.UnpackException):
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, bytes) for name, value in found.items()
    ):
        raise Deviation(f"the headers of a record are no map of text to binary: {cell.hex()}")
    return {name: value.hex() for name, value in found.items()}
