"""A fingerprint of records in any order: the same for a topic, its archive, and what a compaction made of it.

Each record has a hash of 128 bits, the xxh3 of its value, seeded with that of its headers, of its key and its
pointer; a set of records has the sum of theirs modulo 2**128. So the fingerprints of parts add up to that of
the whole, whoever computes them and wherever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from quothwire.batch import encode_headers

MODULUS = 2**128
Headers = Sequence[tuple[str, bytes]] | None


def fingerprint(records: pa.RecordBatch) -> int:
    """That of records with the columns of an archive: offset, key, value, headers."""
    seeds: Iterable[int] = records.column("offset").to_pylist()
    keys = records.column("key")
    if keys.null_count < len(keys):
        seeds = _with_keys(seeds, keys.to_pylist())
    headers = records.column("headers")
    if headers.null_count < len(headers):
        seeds = _with_headers(seeds, headers)
    return sum(map(xxh3_128_intdigest, records.column("value").to_pylist(), seeds)) % MODULUS


def total(parts: Iterable[int]) -> int:
    """The fingerprint of all records of which these are the fingerprints."""
    return sum(parts) % MODULUS


def _with_keys(seeds: Iterable[int], keys: list[bytes | None]) -> Iterator[int]:
    for seed, key in zip(seeds, keys, strict=True):
        yield seed if key is None else xxh3_64_intdigest(key, seed)


def _with_headers(seeds: Iterable[int], headers: pa.Array) -> Iterator[int]:
    for seed, pairs in zip(seeds, _pairs(headers), strict=True):
        yield xxh3_64_intdigest(encode_headers(dict(pairs)), seed) if pairs else seed


def _pairs(headers: pa.Array) -> Iterator[Headers]:
    for one in headers.to_pylist():
        yield None if one is None else [_pair(pair) for pair in one]


def _pair(pair: dict[str, Any]) -> tuple[str, bytes]:
    return pair["key"], pair["value"]
