"""The division of segments among tasks: each once, in order, neither too few nor too many for a task."""

from __future__ import annotations

import random

import pytest

from quoth.spark.jobs.runs import TASK_BYTES_MIN, TASK_FILES_MIN, SegmentRun, shares

SMALL, LARGE = [1_000] * 2 * TASK_FILES_MIN, [TASK_BYTES_MIN] * 2


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (SMALL, [[(0, 0, TASK_FILES_MIN)], [(0, TASK_FILES_MIN, 2 * TASK_FILES_MIN)]]),
        (LARGE, [[(0, 0, 1)], [(0, 1, 2)]]),
        ([], []),
    ],
)
def test_a_task_gets_as_few_segments_as_are_enough(
    logs: list[int], expected: list[list[tuple[int, int, int]]]
) -> None:
    assert list(shares([logs, []])) == expected


def test_small_logs_share_a_task() -> None:
    assert list(shares([[10], [], [20, 30], [40]])) == [
        [SegmentRun(0, 0, 1), SegmentRun(2, 0, 2), SegmentRun(3, 0, 1)]
    ]


def test_each_segment_belongs_to_one_task(rng: random.Random) -> None:
    limits = (100, 1_000, TASK_BYTES_MIN // 10, 2 * TASK_BYTES_MIN)
    for _ in range(20):
        logs = [
            [rng.randrange(limit) for _ in range(rng.choice((0, 1, 30, 2_500)))]
            for limit in rng.choices(limits, k=rng.randrange(8))
        ]
        found = list(shares(logs))
        rows = [(run.log, row) for share in found for run in share for row in range(run.start, run.stop)]
        assert rows == [(log, row) for log, sizes in enumerate(logs) for row in range(len(sizes))]
        for share in found:
            sizes = [logs[run.log][row] for run in share for row in range(run.start, run.stop)]
            enough = sum(sizes) >= TASK_BYTES_MIN or len(sizes) >= TASK_FILES_MIN
            assert enough or share is found[-1]
            assert sum(sizes[:-1]) < TASK_BYTES_MIN
            assert len(sizes) <= TASK_FILES_MIN, "it had enough to do already"
