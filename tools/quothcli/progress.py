"""How far a long command is: a line on stderr, if that is a terminal, and nothing otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
"""Called with the number of records and of bytes that were done since the last call."""


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
