"""The fingerprint of a set of records: the same for a topic, its archive, and the archive after a compaction.

A record has a number of 64 bits, mixed from its pointer and the xxh3 of its value, its key and its headers.
The fingerprint is the sum of these numbers modulo 2**64, so that the fingerprints of parts add up to that of
the whole. Only the hash needs a step for each record, and none in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from quoth.spark.source.arrow import buffers_of

MODULUS = 2**64
_POINTER, _VALUE, _KEY, _HEADERS = (
    np.uint64(factor)
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
)
"""One factor for each column, so that equal values in different columns differ; odd, so that they are
invertible."""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)
"""The mixing function of SplitMix64, https://prng.di.unimi.it/splitmix64.c"""
_BLOCK = 1_000
"""Values that are Python objects at a time: more would not fit into the processor's cache."""

Numbers = NDArray[np.uint64]


def fingerprint(records: pa.RecordBatch) -> int:
    """The fingerprint of records with the columns of an archive: offset, key, value, headers."""
    numbers = np.from_dlpack(records.column("offset")).view(np.uint64) * _POINTER
    numbers += _hashes(records.column("value")) * _VALUE
    keys, headers = records.column("key"), records.column("headers")
    if keys.null_count < len(keys):
        numbers += _hashes(keys) * _KEY
    if headers.null_count < len(headers):
        numbers += _of_headers(headers) * _HEADERS
    return int(_mixed(numbers).sum())


def total(parts: Iterable[int]) -> int:
    """The fingerprint of the union of sets with these fingerprints."""
    return sum(parts) % MODULUS


def _hashes(array: pa.Array) -> Numbers:
    """The hash of each value of bytes or text, 0 for null."""
    ends, content = buffers_of(array)
    hashes = np.fromiter(map(xxh3_64_intdigest, _one_by_one(content, np.diff(ends))), np.uint64, len(array))
    if array.null_count:
        bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
        hashes *= bits[array.offset : array.offset + len(array)]
    return hashes


def _one_by_one(content: memoryview, sizes: NDArray[np.int32]) -> Iterator[bytes]:
    """Yield values as Python bytes. For values of one size, as in records of a fixed layout, numpy is
    faster."""
    if len(sizes) and sizes[0] and (sizes == sizes[0]).all():
        alike = np.frombuffer(content, f"V{sizes[0]}")
        blocks = (alike[at : at + _BLOCK].tolist() for at in range(0, len(alike), _BLOCK))
        return chain.from_iterable(blocks)
    return map(BytesIO(content).read, sizes.tolist())


def _of_headers(lists: pa.ListArray) -> Numbers:
    """The sum of the headers' numbers for each row, 0 where there are none."""
    pairs = lists.flatten()
    ends = np.cumsum(lists.value_lengths().fill_null(0))
    names, values = pairs.field("key"), pairs.field("value")
    sums = np.cumsum(np.append(np.uint64(0), _mixed(_hashes(names) * _KEY + _hashes(values) * _VALUE)))
    rows: Numbers = np.diff(sums[np.append(0, ends)])
    return rows


def _mixed(numbers: Numbers) -> Numbers:
    """Mix the bits of each number."""
    for shift, factor in _ROUNDS:
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers ^ (numbers >> _LAST)
