"""The division of segments among tasks: each once, in order, neither too few nor too many for a task."""

from __future__ import annotations

import random

import pytest

from quoth.spark.jobs.runs import TASK_BYTES_MIN, TASK_FILES_MIN, SegmentRun, shares


def test_many_small_segments_are_few_tasks() -> None:
    assert list(shares([[1_000] * 20_000])) == [
        [SegmentRun(0, start, start + TASK_FILES_MIN)] for start in range(0, 20_000, TASK_FILES_MIN)
    ]


def test_small_logs_share_a_task() -> None:
    assert list(shares([[10], [], [20, 30], [40]])) == [
        [SegmentRun(0, 0, 1), SegmentRun(2, 0, 2), SegmentRun(3, 0, 1)]
    ]


def test_a_large_segment_is_a_task() -> None:
    assert list(shares([[TASK_BYTES_MIN] * 3])) == [[SegmentRun(0, row, row + 1)] for row in range(3)]


def test_nothing_is_no_task() -> None:
    assert list(shares([])) == list(shares([[], []])) == []


@pytest.mark.parametrize("turn", range(20))
def test_each_segment_belongs_to_one_task(rng: random.Random, turn: int) -> None:
    limits = (100, 1_000, TASK_BYTES_MIN // 10, 2 * TASK_BYTES_MIN)
    logs = [
        [rng.randrange(limit) for _ in range(rng.choice((0, 1, 30, 2_500)))]
        for limit in rng.choices(limits, k=rng.randrange(8))
    ]
    found = list(shares(logs))
    rows = [(run.log, row) for share in found for run in share for row in range(run.start, run.stop)]
    assert rows == [(log, row) for log, sizes in enumerate(logs) for row in range(len(sizes))]
    for share in found:
        assert all(run.start < run.stop for run in share)
        sizes = [logs[run.log][row] for run in share for row in range(run.start, run.stop)]
        enough = sum(sizes) >= TASK_BYTES_MIN or len(sizes) >= TASK_FILES_MIN
        assert enough or share is found[-1]
        before = sizes[:-1]
        assert sum(before) < TASK_BYTES_MIN
        assert len(before) < TASK_FILES_MIN, "it had enough to do already"
