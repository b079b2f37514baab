"""Parses records that are to be published: from values, whole files and the lines of a stream.

A line is a value, or a key and a value around a separator, or a record as `quoth read --format json` prints
it: the output for a topic makes the same records again, but for their pointers. The lines of a pipe are
handed on at once, those of a file a block at a time. Memory holds a block and the line that has begun. A
carriage return stays in its line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from quothcli.cli.exit_status import CommandStatus, Refused
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error
from quothwire.text.record_json import NO_HEADERS, Draft

LINE_BYTES_MAX = BATCH_BYTES_MAX - 1_024
"""Longest line whose record fits into one batch."""
JSON_LINE_BYTES_MAX = 6 * LINE_BYTES_MAX + 2**20
"""Longest line of JSON for such a record: a byte takes at most six. The record is measured again."""
BLOCK_BYTES = 256 * 2**10
"""Size of a block: below the longest line, so that only its first and last line can be too long."""
FILE_NAME_HEADER = "filename"
ParseLine = Callable[[bytes], Draft]
"""Parses a line. Raises ValueError with what is wrong."""


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


def plain(line: bytes) -> Draft:
    """Parse a line that is a value."""
    return line, None, NO_HEADERS


def keyed(separator: bytes) -> ParseLine:
    """Parse lines with a key and a value around the first separator; without one there is no key."""

    def read(line: bytes) -> Draft:
        key, found, value = line.partition(separator)
        return (value, key, NO_HEADERS) if found else plain(line)

    return read


def parsed(lines: Sequence[bytes], read: ParseLine, before: int = 0) -> Iterator[Draft]:
    """Parse lines. before: how many came before these. Raises `Refused` ``bad_line`` with the number."""
    for number, line in enumerate(lines, before + 1):
        try:
            draft = read(line)
        except (ValueError, RecursionError) as problem:
            raise Refused(
                "bad_line",
                f"line {number} is no record: {problem}",
                'like {"key": "k", "value": "v", "headers": {"h": "1"}}; what stands before it was published',
                CommandStatus.USAGE,
            ) from None
        yield draft


def files(paths: Iterable[Path], *, with_names: bool) -> Iterator[Draft]:
    """Read whole files, each when it is needed, as records. with_names: put the name into a header."""
    for path in paths:
        with path.open("rb") as file:
            value = file.read(LINE_BYTES_MAX + 1)
        _check_size(path, len(value))
        yield value, None, {FILE_NAME_HEADER: os.fsencode(path.name)} if with_names else NO_HEADERS


def check_files(paths: Iterable[Path]) -> None:
    """Check that all files can be read and fit, before anything is sent. Raises ``too_large`` or OSError."""
    for path in paths:
        if not path.is_fifo():  # opening it would take what it has, or wait for it
            with path.open("rb") as file:
                file.read(0)
                _check_size(path, os.fstat(file.fileno()).st_size)


def _check_size(path: Path, size: int) -> None:
    if size > LINE_BYTES_MAX:
        held = f"{size:,} bytes" if path.is_file() else "too much"
        raise error(
            "too_large",
            f"{path} has {held}, a record holds {LINE_BYTES_MAX:,} bytes",
            "a file becomes one record: split it, or publish a reference to it; nothing of it was sent",
        )
