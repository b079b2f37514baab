"""Reads the lines of a stream, without their newline, as they come.

The lines of a pipe are handed on at once, those of a file a block at a time. Memory holds a block and the
line that has begun. A carriage return stays in its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error

LINE_BYTES_MAX = BATCH_BYTES_MAX - 1_024
"""Longest line whose record fits into one batch."""
JSON_LINE_BYTES_MAX = 6 * LINE_BYTES_MAX + 2**20
"""Longest line of JSON for such a record: a byte takes at most six. The record is measured again."""
BLOCK_BYTES = 256 * 2**10
"""Size of a block: below the longest line, so that only its first and last line can be too long."""


class Stream(Protocol):
    """A binary file, buffered."""

    def read1(self, size: int, /) -> bytes:
        """Return the bytes that are there, up to this many; wait if there are none."""


def portions(
    stream: Stream, newline: bytes = b"\n", longest: int = LINE_BYTES_MAX, block_bytes: int = BLOCK_BYTES
) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, at least one in every list; the last one needs no newline.

    newline: one byte. longest: bytes of a line. block_bytes: bytes that are read at once, less than that.
    Raises `RequestError` ``too_large`` for a line that no record can hold.
    """
    count = 0
    begun = bytearray()
    while block := stream.read1(block_bytes):
        *lines, rest = block.split(newline)
        if lines and begun:
            begun += lines[0]
            lines[0] = bytes(begun)
            begun.clear()
        begun += rest
        if len(begun) > longest or any(len(line) > longest for line in lines[:1]):
            raise error(
                "too_large",
                f"line {count + 1 + (len(lines) if len(begun) > longest else 0)} has more than "
                f"{longest} bytes",
                "a line becomes one record; cut it, or publish a reference to it",
            )
        if lines:
            count += len(lines)
            yield lines
    if begun:
        yield [bytes(begun)]
