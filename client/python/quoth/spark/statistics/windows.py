"""Computes the windows of a range, in a task.

The columns are slices of the bytes that the broker sent, and only the lengths of values are read. A window
takes some steps, a record none, but for the hash of a key that is new in its batch.

The number of distinct keys is estimated by the smallest of their hashes (KMV sketch). Hashes are spread
evenly: if the 1,024th smallest one lies at a tenth of their range, there are about ten times as many. Two
sketches can be merged to that of all keys. Up to `KEPT` - 1 keys the count is exact; above, it is within 3 %
in two cases of three, and within 9 % but for one in three hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby, pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from quoth.message import Gap, Reason
from quoth.spark.source.range_reader import DataLoss, RangeReader, TopicRange, into

COLUMNS = ("offset", "ordinal", "key", "value")
KEPT = 1_024
"""Hashes of a sketch: 8 KiB."""

Sketch = NDArray[np.uint64]
"""The smallest hashes, rising, each once."""
EMPTY: Sketch = np.empty(0, np.uint64)

_SUMS = ("records", "missing", "value_bytes", "key_bytes", "keyed")


class Window(NamedTuple):
    """The statistics of a topic in a span of time that begins at a multiple of its length.

    start: a pointer. missing: records that could not be read, which are not in `records`; they belong to the
    window in which they end. keyed: records with a key; keys: about the number of distinct ones. largest:
    bytes of key and value of the largest record; largest_pointer: the first of that size. first, last:
    pointers; next_ordinal: the ordinal behind the last record. All three are 0 without records. sketch: of
    the keys, empty if no record can be added any more.
    """

    topic: str
    start: int
    records: int = 0
    missing: int = 0
    value_bytes: int = 0
    key_bytes: int = 0
    keyed: int = 0
    keys: int = 0
    largest: int = 0
    largest_pointer: int = 0
    first: int = 0
    last: int = 0
    next_ordinal: int = 0
    sketch: Sketch = EMPTY

    def joined(self, later: Window) -> Window:
        """Join it with a later part of the same window."""
        if not self.records or not later.records:
            found = self if self.records else later
            return found._replace(missing=self.missing + later.missing)
        sketch = merged(self.sketch, later.sketch)
        largest = later if later.largest > self.largest else self
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        return later._replace(
            **sums,
            keys=estimate(sketch),
            largest=largest.largest,
            largest_pointer=largest.largest_pointer,
            first=self.first,
            sketch=sketch,
        )


class RangeWindows(NamedTuple):
    """The result of a task: its windows in order, and the gaps in its range."""

    windows: list[Window]
    gaps: list[Gap]


def windows_in(width: int, range_: TopicRange) -> RangeWindows:
    """Compute the windows of a range, in a worker. width: of a window, in microseconds.

    Only the first and the last one may continue in another range, so only these keep their sketches.
    """
    losses: list[DataLoss] = []
    reader = RangeReader(range_, into(losses))
    parts = (window for batch in reader.arrow(COLUMNS) for window in _windows(range_.topic, batch, width))
    found: list[Window] = []
    for window in joined(parts):
        if len(found) > 1:
            found[-1] = found[-1]._replace(sketch=EMPTY)
        found.append(window)
    starts = {window.start: window for window in found}
    for loss in losses:
        start = min(loss.next, range_.until) // width * width
        window = starts.get(start, Window(range_.topic, start))
        starts[start] = window._replace(missing=window.missing + loss.records)
    gaps = [Gap(*loss[:4], cast(Reason, loss.reason)) for loss in losses]  # see `into`
    return RangeWindows([starts[start] for start in sorted(starts)], gaps)


def _windows(topic: str, batch: pa.RecordBatch, width: int) -> Iterator[Window]:
    """The windows of some records."""
    pointers, ordinals = (batch.column(name).to_numpy() for name in ("offset", "ordinal"))
    keys = batch.column("key")
    value_sizes = pc.binary_length(batch.column("value")).to_numpy().astype(np.int64)
    key_sizes = pc.fill_null(pc.binary_length(keys), 0).to_numpy().astype(np.int64)
    starts = pointers // width * width
    bounds = np.flatnonzero(np.diff(starts)) + 1
    for begin, end in pairwise([0, *bounds.tolist(), len(pointers)]):
        sizes = value_sizes[begin:end] + key_sizes[begin:end]
        largest = int(np.argmax(sizes))
        sketch = sketch_of(keys[begin:end])
        yield Window(
            topic=topic,
            start=int(starts[begin]),
            records=end - begin,
            value_bytes=int(value_sizes[begin:end].sum()),
            key_bytes=int(key_sizes[begin:end].sum()),
            keyed=end - begin - keys[begin:end].null_count,
            keys=estimate(sketch),
            largest=int(sizes[largest]),
            largest_pointer=int(pointers[begin + largest]),
            first=int(pointers[begin]),
            last=int(pointers[end - 1]),
            next_ordinal=int(ordinals[end - 1]) + 1,
            sketch=sketch,
        )


def joined(windows: Iterable[Window]) -> Iterator[Window]:
    """Join neighbours with the same start."""
    return (reduce(Window.joined, parts) for _, parts in groupby(windows, lambda window: window.start))


def sketch_of(keys: pa.Array) -> Sketch:
    """The sketch of some keys. keys: binary, nulls do not count."""
    different = pc.unique(keys.drop_null()).to_pylist()
    return np.unique(np.fromiter(map(xxh3_64_intdigest, different), np.uint64, len(different)))[:KEPT]


def merged(one: Sketch, other: Sketch) -> Sketch:
    """The sketch of all keys of both."""
    return np.unique(np.concatenate((one, other)))[:KEPT]


def estimate(sketch: Sketch) -> int:
    """Estimate the number of distinct keys."""
    if len(sketch) < KEPT:
        return len(sketch)
    return round((KEPT - 1) / (float(sketch[-1]) / 2**64))
