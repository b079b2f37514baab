"""Encodes the headers of many records at once, to the same bytes as `quothwire.headers.encode_headers`.

The type is Kafka's: array<struct<key: string, value: binary>>. Joining Arrow arrays takes a tenth of the time
of a step in Python for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quothwire.errors import error
from quothwire.headers import HEADERS_BYTES_MAX


def encode_header_column(headers: Any, own: tuple[str, Any] | None = None) -> pa.Array:
    """Encode the headers of some rows, to empty bytes where there are none.

    headers: an array of lists of structs. own: one more header for each row, its name and an array of bytes;
    it replaces a header of that name. Raises ``bad_request`` or ``too_large`` for headers that a record
    cannot have, `ArrowInvalid` for names that are not UTF-8.
    """
    pairs = headers.flatten()
    keys, values = pairs.field("key"), pairs.field("value")
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0))
    if len(keys):
        rows = np.repeat(np.arange(len(counts)), counts)
        _check(pairs, keys, values, rows)
        if own is not None:
            others = pc.not_equal(keys, own[0])
            keys, values, rows = keys.filter(others), values.filter(others), pa.array(rows).filter(others)
            counts = np.bincount(rows, minlength=len(counts))
    parts = [_joined(_pairs(keys, values), counts)] if len(keys) else []
    if own is not None:
        parts += _pair(own[0], own[1])
        counts = counts + 1
    if not parts:
        return pa.repeat(pa.scalar(b"", pa.binary()), len(counts))
    encoded = pc.binary_join_element_wise(_prefixes(counts, _map_of), *parts, b"")
    longest = pc.max(pc.binary_length(encoded)).as_py() or 0
    if longest > HEADERS_BYTES_MAX:
        raise error("too_large", f"headers of {longest} bytes, at most {HEADERS_BYTES_MAX}")
    return encoded


def without_undecoded(headers: Any) -> tuple[Any, int]:
    """Replace lists of headers that a source could not decode by null; returns the lists and their number.

    The source shows such headers as one with a null key and their bytes. All other lists stay unchanged, even
    invalid ones.
    """
    pairs = headers.flatten()
    keys, values = pairs.field("key"), pairs.field("value")
    if not keys.null_count:
        return headers, 0
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0))
    is_sign = pc.and_(pc.and_(pairs.is_valid(), keys.is_null()), values.is_valid())
    rows = np.repeat(np.arange(len(headers)), counts)
    undecoded = np.zeros(len(headers), bool)
    undecoded[rows[np.asarray(is_sign)]] = True
    undecoded &= counts == 1
    left = pc.if_else(pa.array(undecoded), pa.scalar(None, headers.type), headers)
    return left, int(undecoded.sum())


def _check(pairs: Any, keys: Any, values: Any, rows: np.ndarray[Any, Any]) -> None:
    if pairs.null_count or keys.null_count or values.null_count:
        raise error(
            "bad_request",
            "a header, its key or its value is null",
            "leave such headers out, or give them empty bytes",
        )
    keys.validate(full=True)
    named = keys.dictionary_encode()
    places = rows * max(1, len(named.dictionary)) + np.asarray(named.indices)
    found, first, times = np.unique(places, return_index=True, return_counts=True)
    if len(found) < len(places):
        twice = keys[int(first[times.argmax()])].as_py()
        hint = "a record has each header once: join the values of those that are there twice"
        raise error("bad_request", f"header {twice!r} stands twice in a row"[:200], hint)


def _pairs(keys: Any, values: Any) -> Any:
    """Encode each header."""
    names, contents = keys.cast(pa.binary()), values.cast(pa.binary())
    before = _prefixes(pc.binary_length(names), _text_of)
    between = _prefixes(pc.binary_length(contents), _bytes_of)
    return pc.binary_join_element_wise(before, names, between, contents, b"")


def _pair(name: str, values: Any) -> list[Any]:
    """Encode a header with one name and a value for each row, as arrays to be joined."""
    contents = values.cast(pa.binary())
    before = _text_of(len(name.encode())) + name.encode()
    return [pa.scalar(before, pa.binary()), _prefixes(pc.binary_length(contents), _bytes_of), contents]


def _joined(pairs: Any, counts: np.ndarray[Any, Any]) -> Any:
    """Concatenate the encoded headers of each row."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pairs), b"")


def _prefixes(sizes: Any, prefix_of: Callable[[int], bytes]) -> Any:
    """The msgpack prefix for each size: an array, or a scalar if all sizes are the same."""
    sizes = np.asarray(sizes)
    if len(sizes) and sizes.min() == sizes.max():
        return pa.scalar(prefix_of(int(sizes[0])), pa.binary())
    found, which = np.unique(sizes, return_inverse=True)
    return pa.array([prefix_of(int(size)) for size in found], pa.binary()).take(pa.array(which))


def _text_of(size: int) -> bytes:
    packed: bytes = msgpack.packb("x" * size)
    return packed[: len(packed) - size]


def _bytes_of(size: int) -> bytes:
    packed: bytes = msgpack.packb(bytes(size))
    return packed[: len(packed) - size]


def _map_of(size: int) -> bytes:
    packed: bytes = msgpack.Packer().pack_map_header(size)
    return packed if size else b""
