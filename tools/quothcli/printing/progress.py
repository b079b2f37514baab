"""Shows the progress of a long command: a line on stderr, if that is a terminal, and nothing otherwise.

It is the last line of the terminal as long as it is shown. Output meanwhile, on stdout or on stderr, is
printed while the line is hidden, so that the two never share one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

Advance = Callable[[int, int], None]
"""Called with the number of records and of bytes since the last call."""
DRAWN_S = 0.1
"""Shortest time between two drawings of the line."""
_shown: list[Progress] = []
"""The lines of nested commands; the last one is shown."""


class _Terminal:
    """The terminal of stderr. What is drawn is lost if it is gone: the command goes on all the same."""

    def __init__(self) -> None:
        self.encoding = sys.stderr.encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


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
    from rich import progress as columns
    from rich.console import Console

    bar = [columns.BarColumn(), columns.TaskProgressColumn()] if total_bytes is not None else []
    counter = [columns.TextColumn("{task.fields[records]:,} records")] if counts else []
    size = columns.DownloadColumn() if total_bytes is not None else columns.FileSizeColumn()
    line = columns.Progress(
        columns.TextColumn("{task.description}", markup=False),
        *(*bar, *counter, size, columns.TransferSpeedColumn()),
        console=Console(file=_Terminal()),  # type: ignore[arg-type]  # all that it needs of a file
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    line.add_task(what, total=total_bytes, records=0)
    (task,) = line.tasks
    drawn = 0.0

    def advance(records: int, size: int) -> None:
        nonlocal drawn
        line.update(task.id, advance=size, records=task.fields["records"] + records)
        if time.monotonic() - drawn >= DRAWN_S:
            line.refresh()
            drawn = time.monotonic()

    _shown.append(line)
    try:
        _draw(line)
        yield advance
    finally:
        line.stop()
        _shown.remove(line)


def is_shown() -> bool:
    """True while there is such a line."""
    return bool(_shown)


@contextmanager
def hidden() -> Iterator[None]:
    """Hide the line while something is printed inside."""
    line = _shown[-1] if _shown else None
    if line is not None:
        line.stop()
    try:
        yield
    finally:
        if line is not None:
            _draw(line)


def _draw(line: Progress) -> None:
    line.start()
    line.console.show_cursor(True)  # or a command that is killed would leave none
