"""Divides files among tasks.

A task costs Spark some hundredths of a second, a small file a ten-thousandth. So a task gets neighbouring
files, of several logs if need be, until they are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

TASK_BYTES_MIN = 64 * 2**20
TASK_FILES_MIN = 1_000


class SegmentRun(NamedTuple):
    """Neighbouring files of a log: its number, and the rows of its list from `start` to `stop`."""

    log: int
    start: int
    stop: int


def shares(logs: Sequence[Sequence[int]]) -> Iterator[list[SegmentRun]]:
    """Yield the files of each task: at least `TASK_BYTES_MIN` or `TASK_FILES_MIN`, but for the last one.

    logs: the bytes of each log's files, oldest first.
    """
    share: list[SegmentRun] = []
    size = count = 0
    for log, sizes in enumerate(logs):
        start = 0
        for stop, one in enumerate(sizes, 1):
            size, count = size + one, count + 1
            if size >= TASK_BYTES_MIN or count >= TASK_FILES_MIN:
                yield [*share, SegmentRun(log, start, stop)]
                share, size, count, start = [], 0, 0, stop
        if start < len(sizes):
            share.append(SegmentRun(log, start, len(sizes)))
    if share:
        yield share
