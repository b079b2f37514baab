"""A fingerprint of records in any order: the same for a topic, its archive, and what a compaction made of it.

Each record has a number of 64 bits, mixed of its pointer and the xxh3 of its value, its key and its headers;
a set of records has the sum of theirs modulo 2**64. So the fingerprints of parts add up to that of the whole,
whoever computes them and wherever. Only hashing takes a step for each record, and that is not one in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from quoth.spark.sink.arrow_buffers import cells_of

MODULUS = 2**64
_POINTER, _VALUE, _KEY, _HEADERS = (
    np.uint64(factor)
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
)
"""What keeps apart in which column something stands; odd, so that nothing of it is lost."""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)
"""The mixing function of SplitMix64, https://prng.di.unimi.it/splitmix64.c"""
_AT_ONCE = 1_000
"""Cells that are Python's at a time: more would not stay near the processor."""

Numbers = NDArray[np.uint64]


def fingerprint(records: pa.RecordBatch) -> int:
    """That of records with the columns of an archive: offset, key, value, headers."""
    numbers = np.from_dlpack(records.column("offset")).view(np.uint64) * _POINTER
    numbers += _hashes(records.column("value")) * _VALUE
    keys, headers = records.column("key"), records.column("headers")
    if keys.null_count < len(keys):
        numbers += _hashes(keys) * _KEY
    if headers.null_count < len(headers):
        numbers += _of_headers(headers) * _HEADERS
    return int(_mixed(numbers).sum())


def total(parts: Iterable[int]) -> int:
    """The fingerprint of all records of which these are the fingerprints."""
    return sum(parts) % MODULUS


def _hashes(cells: pa.Array) -> Numbers:
    """The hash of each cell of bytes or text, 0 where there is none."""
    ends, content = cells_of(cells)
    hashes = np.fromiter(map(xxh3_64_intdigest, _one_by_one(content, np.diff(ends))), np.uint64, len(cells))
    if cells.null_count:
        bits = np.unpackbits(np.frombuffer(cells.buffers()[0], np.uint8), bitorder="little")
        hashes *= bits[cells.offset : cells.offset + len(cells)]
    return hashes


def _one_by_one(content: memoryview, sizes: NDArray[np.int32]) -> Iterator[bytes]:
    """Cells as Python's bytes. Those of one size, as records of a fixed layout are, numpy cuts faster."""
    if len(sizes) and sizes[0] and (sizes == sizes[0]).all():
        alike = np.frombuffer(content, f"V{sizes[0]}")
        stretches = (alike[at : at + _AT_ONCE].tolist() for at in range(0, len(alike), _AT_ONCE))
        return chain.from_iterable(stretches)
    return map(BytesIO(content).read, sizes.tolist())


def _of_headers(lists: pa.ListArray) -> Numbers:
    """For each row the sum over its headers, 0 where there are none."""
    pairs = lists.flatten()
    ends = np.cumsum(lists.value_lengths().fill_null(0))
    names, values = pairs.field("key"), pairs.field("value")
    sums = np.cumsum(np.append(np.uint64(0), _mixed(_hashes(names) * _KEY + _hashes(values) * _VALUE)))
    rows: Numbers = np.diff(sums[np.append(0, ends)])
    return rows


def _mixed(numbers: Numbers) -> Numbers:
    """Each of them spread over all its bits."""
    for shift, factor in _ROUNDS:
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers ^ (numbers >> _LAST)
