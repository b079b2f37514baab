"""Damage to what a broker has stored, done while it does not run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kit.logs import boundaries, segments
from quothwire import batch
from quothwire.batch import HEADER_BYTES, Header


class Stored(NamedTuple):
    """A batch on the disk: from `start` to `end` in a segment file."""

    path: Path
    start: int
    end: int
    header: Header

    def holds(self, offset: int) -> bool:
        """Does this byte of its file belong to it?"""
        return self.start <= offset < self.end


def stored_batches(topics: Path, log_id: int) -> list[Stored]:
    """Every batch of a topic, oldest first."""
    (folder,) = topics.glob(f"*~{log_id:016x}")
    found = []
    for path in segments(folder):
        data = path.read_bytes()
        if batch.MAGIC not in data:
            continue
        offsets = boundaries(path, log_id)
        for start, end in pairwise(offsets):
            header = batch.parse_header(data[start : start + HEADER_BYTES], log_id)
            found.append(Stored(path, start, end, header))
    return found


def flip(path: Path, offset: int, bits: int = 0x5A) -> None:
    """Change one byte."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def zero(path: Path, start: int, end: int) -> None:
    """Overwrite a stretch with zeros."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
