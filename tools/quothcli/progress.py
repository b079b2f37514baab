"""How far a long command is: a line on stderr, if that is a terminal, and nothing otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
"""Called with the number of records and of bytes that were done since the last call."""


@contextmanager
def byte_progress(
    what: str, total: int, pace: Callable[[int], None] | None = None
) -> Iterator[Callable[[int], None]]:
    """Show how many bytes of all have been done; yields what is called with those since the last call.

    pace: called with the same, and may take its time.
    """
    with progress(what, total or None, counts=False) as show:

        def advance(size: int) -> None:
            show(0, size)
            if pace is not None:
                pace(size)

        yield advance


@contextmanager
def progress(
    what: str, total_bytes: int | None = None, *, quiet: bool = False, counts: bool = True
) -> Iterator[Advance]:
    """Show what is being done, with a bar if its size is known; nothing if quiet.

    counts: show how many records were done.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _records, _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        *([BarColumn()] if total_bytes else []),
        *([TextColumn("{task.fields[records]:,} records")] if counts else []),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    done = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total_bytes, records=0)

        def advance(records: int, size: int) -> None:
            nonlocal done
            done += records
            shown.update(task, advance=size, records=done)

        yield advance
