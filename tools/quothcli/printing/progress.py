"""Shows the progress of a long command: a line on stderr, if that is a terminal, and nothing otherwise.

It is the last line of the terminal as long as it is shown. Output meanwhile, on stdout or on stderr, is
printed while the line is hidden, so that the two never share one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quothcli.printing.text import bytes_text

Advance = Callable[[int, int], None]
"""Called with the number of records and of bytes since the last call."""
DRAWN_S = 0.1
"""Shortest time between two drawings of the line."""
_BAR_COLUMNS = 20
_ERASE = "\r\x1b[2K"


@contextmanager
def byte_progress(
    what: str, total: int, limit: Callable[[int], None] | None = None
) -> Iterator[Callable[[int], None]]:
    """Show how many bytes of all are done; yields a function that is called with those since the last call.

    limit: called with the same; it may wait, to keep a rate.
    """
    with progress(what, total or None, counts=False) as show:

        def advance(size: int) -> None:
            show(0, size)
            if limit is not None:
                limit(size)

        yield advance


@contextmanager
def progress(
    what: str, total_bytes: int | None = None, *, quiet: bool = False, counts: bool = True
) -> Iterator[Advance]:
    """Show a line of progress, with a bar if the size is known; nothing if quiet.

    counts: show the number of records, too.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _records, _bytes: None
        return
    line = _Line(what, total_bytes, counts=counts)
    _lines.append(line)
    try:
        line.draw()
        yield line.advance
    finally:
        line.erase()
        _lines.remove(line)


def is_shown() -> bool:
    """True while there is such a line."""
    return bool(_lines)


@contextmanager
def hidden() -> Iterator[None]:
    """Hide the line while something is printed inside."""
    if not _lines:
        yield
        return
    _lines[-1].erase()
    try:
        yield
    finally:
        _lines[-1].draw()


class _Line:
    """A line of progress."""

    def __init__(self, what: str, total_bytes: int | None, *, counts: bool) -> None:
        self._what = what
        self._total = total_bytes
        self._counts = counts
        self._records = 0
        self._bytes = 0
        self._began = self._drawn = time.monotonic()

    def advance(self, records: int, size: int) -> None:
        """Count what was done, and draw the line if it is time."""
        self._records += records
        self._bytes += size
        if time.monotonic() - self._drawn >= DRAWN_S:
            self.draw()

    def draw(self) -> None:
        """Draw it in the place of the terminal's last line."""
        self._drawn = time.monotonic()
        _write(_ERASE + self.text()[: _columns() - 1])

    def erase(self) -> None:
        """Clear the terminal's last line."""
        _write(_ERASE)

    def text(self) -> str:
        """Return the line."""
        size = bytes_text(self._bytes)
        parts = [self._what]
        if self._total is not None:
            done = min(1.0, self._bytes / self._total)
            full = int(done * _BAR_COLUMNS)
            parts.append(f"[{'#' * full}{'.' * (_BAR_COLUMNS - full)}] {done:4.0%}")
            size += f" of {bytes_text(self._total)}"
        if self._counts:
            parts.append(f"{self._records:,} records")
        seconds = self._drawn - self._began
        rate = [f"{bytes_text(self._bytes / seconds)}/s"] if seconds >= 1 else []
        return "  ".join([*parts, size, *rate])


_lines: list[_Line] = []
"""The lines of nested commands; the last one is shown."""


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
