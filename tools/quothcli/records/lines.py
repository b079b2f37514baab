"""Lines of a stream as records: bytes without their newline, in whatever portions they come.

What a pipe has is handed on at once; a file comes a block at a time; memory holds a block and the line that
has begun, and a producer bounds the bytes of those that are on their way. A carriage return stays in its
line: nothing is changed but the newline, which is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error

LINE_BYTES_MAX = BATCH_BYTES_MAX - 1_024
"""A record and what surrounds it fit into one batch."""
JSON_LINE_BYTES_MAX = 6 * LINE_BYTES_MAX + 2**20
"""Such a record in JSON: a byte takes six there at most. What it holds is measured again."""
BLOCK_BYTES = 256 * 2**10
"""Less than the longest line, so that only the first and the last line of a block can be too long."""


class Stream(Protocol):
    """A binary file, buffered."""

    def read1(self, size: int, /) -> bytes:
        """What is there, up to this much; waits only if nothing is."""


def portions(stream: Stream, newline: bytes = b"\n", longest: int | None = None) -> Iterator[list[bytes]]:
    """The lines of a stream, at least one in every list; the last one needs no newline.

    newline: one byte. longest: bytes of a line, those of a record unless it is said.
    Raises `RequestError` ``too_large`` for a line that no record can hold.
    """
    longest = longest or LINE_BYTES_MAX
    count = 0
    begun = bytearray()
    while block := stream.read1(BLOCK_BYTES):
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
