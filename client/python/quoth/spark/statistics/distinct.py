"""Estimates the number of distinct keys by the smallest of their hashes (KMV sketch).

Hashes are spread evenly: if the 1,024th smallest one lies at a tenth of their range, there are about ten
times as many. Two sketches can be joined to that of all keys. Up to `KEPT` - 1 keys the count is exact;
above, it is within 3 % in two cases of three, and within 9 % but for one in three hundred.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

KEPT = 1_024
"""Hashes of a sketch: 8 KiB."""

Sketch = NDArray[np.uint64]
"""The smallest hashes, rising, each once."""

EMPTY: Sketch = np.empty(0, np.uint64)


def sketch(keys: pa.Array) -> Sketch:
    """The sketch of some keys. keys: binary, nulls do not count."""
    different = pc.unique(keys.drop_null()).to_pylist()
    hashes = np.fromiter(map(xxh3_64_intdigest, different), np.uint64, len(different))
    return _smallest(hashes)


def joined(one: Sketch, other: Sketch) -> Sketch:
    """The sketch of all keys of both."""
    if not len(one) or not len(other):
        return one if len(one) else other
    return _smallest(np.concatenate((one, other)))


def estimate(found: Sketch) -> int:
    """Estimate the number of distinct keys."""
    if len(found) < KEPT:
        return len(found)
    return round((KEPT - 1) / (float(found[-1]) / 2**64))


def _smallest(hashes: NDArray[np.uint64]) -> Sketch:
    return np.unique(hashes)[:KEPT]
