"""Files of appendix and data directories of Poe, as those programs leave them in any state.

To measure an import, in this folder's `tests`:

    python -m kit.inherited.appendix_files /tmp/poe 1000000 100      # records, bytes of each
    time quoth log import /tmp/poe /tmp/imported
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quothlog.appendix.segment_format import encode_entry, encode_record

VECTORS = Path(__file__).parents[2] / "vectors" / "inherited" / "appendix.json"
SEGMENTS: list[dict[str, Any]] = json.loads(VECTORS.read_text())["segments"]
T = 1_700_000_000_000_000
"""The time at which these logs begin."""

Rows = Sequence[tuple[int, bytes]]
"""Pointers and values."""


def data_and_index(rows: Rows) -> tuple[bytes, bytes]:
    """The two files of a segment with these records."""
    data, index = bytearray(), bytearray()
    for pointer, value in rows:
        index += encode_entry(pointer, len(data))
        data += encode_record(pointer, value)
    return bytes(data), bytes(index)


def put_segment(prefix: Path, rows: Rows, *, locked: bool = False) -> None:
    """Write the files of a segment."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    data, index = data_and_index(rows)
    put_files(prefix, data, index)
    if locked:
        Path(f"{prefix}_lock").touch()


def put_files(prefix: Path, data: bytes, index: bytes | None) -> None:
    """Write files with these bytes. index: None for a segment that has lost it."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{prefix}_data").write_bytes(data)
    if index is not None:
        Path(f"{prefix}_index").write_bytes(index)


def put_topics(directory: Path, topics: Mapping[str, Sequence[Rows]]) -> None:
    """Write a data directory of Poe: the segments of each topic, named just below their first pointers."""
    for name, segments in topics.items():
        for number, rows in enumerate(segments):
            base = rows[0][0] - 1 if rows else T + 10**9 + number
            put_segment(directory / "topics" / name / str(base), rows)


def rows(count: int, *, begin: int = T, step: int = 100, size: int = 20) -> list[tuple[int, bytes]]:
    """Records with rising pointers and distinct values."""
    return [(begin + step * number, b"%0*d" % (size, number)) for number in range(count)]


def put_large_topic(directory: Path, count: int, size: int) -> None:
    """Write a topic of Poe with so many records, 100 us apart, in segments as Poe rolls them by default."""
    for first in range(0, count, RECORDS_A_SEGMENT):
        number = min(RECORDS_A_SEGMENT, count - first)
        put_segment(
            directory / "topics" / "orders" / str(T + 100 * first - 1),
            rows(number, begin=T + 100 * first, size=size),
        )


RECORDS_A_SEGMENT = 100_000

if __name__ == "__main__":
    put_large_topic(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
