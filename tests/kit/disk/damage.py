"""Damage to what a broker has stored, done while it does not run."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kit.disk.logs import boundaries, sealed, segments
from quothwire import batch
from quothwire.batch import HEADER_BYTES, Header
from quothwire.errors import RequestError
from quothwire.headers import encode_headers

MAP = encode_headers({"checked": b"later"})
NO_MAP = b"\xc1" * len(MAP)
"""Encoded headers, and as many bytes that are none."""


class Stored(NamedTuple):
    """A batch on the disk: from `start` to `end` in a segment file."""

    path: Path
    start: int
    end: int
    header: Header


def stored_batches(topics: Path, log_id: int) -> list[Stored]:
    """Every batch of a topic, oldest first."""
    (folder,) = topics.glob(f"*~{log_id:016x}")
    return batches_in(segments(folder), log_id)


def batches_in(paths: Iterable[Path], log_id: int) -> list[Stored]:
    """Every batch of some segments, or files of staged batches."""
    found = []
    for path in paths:
        data = path.read_bytes()
        if batch.MAGIC not in data:
            continue
        offsets = boundaries(path, log_id)
        for start, end in pairwise(offsets):
            header = batch.parse_header(data[start : start + HEADER_BYTES], log_id)
            found.append(Stored(path, start, end, header))
    return found


def with_headers(topics: Path, log_id: int, good: bytes, other: bytes) -> None:
    """Let stored batches of a topic have other encoded headers, as `replace_headers` does."""
    (folder,) = topics.glob(f"*~{log_id:016x}")
    replace_headers(segments(folder), log_id, good, other)


def replace_headers(
    paths: Iterable[Path], log_id: int, good: bytes = MAP, other: bytes = NO_MAP, *, flags: int = 0
) -> None:
    """Let stored batches have other encoded headers, of as many bytes, and the checksums that go with them.

    So lies on the disk what brokers stored that did not look at headers; one may be running meanwhile.
    flags: added to those of the batches, likewise.
    """
    assert len(good) == len(other)
    changed = 0
    for one in batches_in(paths, log_id):
        body = one.path.read_bytes()[one.start + HEADER_BYTES : one.end]
        if good in body:
            body = body.replace(good, other)
            header = one.header._replace(flags=one.header.flags | flags)
            overwrite(one.path, one.start, sealed(header, body, log_id))
            changed += 1
    assert changed, "no batch has these headers"


def flip(path: Path, offset: int, bits: int = 0x5A) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def zero(path: Path, start: int, end: int) -> None:
    overwrite(path, start, bytes(end - start))


def cut(path: Path, start: int, end: int, instead: bytes = b"") -> None:
    """Remove a range; the bytes behind it move up."""
    data = path.read_bytes()
    path.write_bytes(data[:start] + instead + data[end:])


def insert(path: Path, offset: int, data: bytes) -> None:
    """Put bytes in; what lay there moves down."""
    cut(path, offset, offset, data)


def truncate(path: Path, size: int) -> None:
    os.truncate(path, size)


def swap(path: Path, one: tuple[int, int], other: tuple[int, int]) -> None:
    """Swap two ranges, the first of which ends before the other begins."""
    data, (a, b), (c, d) = path.read_bytes(), one, other
    path.write_bytes(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:])


def swap_files(one: Path, other: Path) -> None:
    """Let two files change their names."""
    beside = one.with_name("beside")
    one.rename(beside)
    other.rename(one)
    beside.rename(other)


def in_place(data: bytes, written: Sequence[bytes], log_id: int, begin: int = 0) -> set[int]:
    """Return the batches, by number, that every reader has to find in these bytes of a segment.

    Those that are whole, unless they begin within the length of one that is not, and unless there is another
    way to read as many in order without them, be it by headers, by whole batches or without the copies.
    begin: where an index says that the batches begin; those that have been moved before it need not be found.
    """
    numbers = {raw: number for number, raw in enumerate(written)}
    bases = {batch.parse_header(raw, log_id).base: number for number, raw in enumerate(written)}
    rows = [
        (header.base, numbers.get(data[start : start + header.size]))
        for start, header in _headers_in(data, log_id)
        if start >= begin
    ]
    stand = [base for base, _ in rows]
    whole = [base for base, number in rows if number is not None]
    broken = {base for base, number in rows if number is None}
    needed = _needed(stand) & _needed(whole) & _needed(list(dict.fromkeys(stand)))
    return {bases[base] for base in needed - broken if base in bases}


def _headers_in(data: bytes, log_id: int) -> Iterator[tuple[int, Header]]:
    """The headers of a log's batches that do not begin within the length of another one."""
    start = data.find(batch.MAGIC)
    while start >= 0:
        size = 1
        if batch.is_stamped(data[start : start + HEADER_BYTES], log_id):
            with contextlib.suppress(RequestError):
                header = batch.parse_header(data, log_id, start)
                size = header.size
                yield start, header
        start = data.find(batch.MAGIC, start + size)


def _needed(numbers: Sequence[int]) -> set[int]:
    """Return the numbers without which no rising row is as long as the longest one."""
    longest = _longest_rise(numbers)
    return {one for one in numbers if _longest_rise([other for other in numbers if other != one]) < longest}


def _longest_rise(numbers: Collection[int]) -> int:
    ends: list[int] = []
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)
