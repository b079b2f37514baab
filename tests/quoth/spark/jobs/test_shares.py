"""The division of files among tasks: each once, in order, neither too few nor too many for a task."""

from __future__ import annotations

import random

from quoth.spark.jobs.session import TASK_BYTES_MIN, TASK_FILES_MIN, shares


def test_each_file_belongs_to_one_task_and_a_task_gets_as_few_as_are_enough(rng: random.Random) -> None:
    limits = (100, 1_000, TASK_BYTES_MIN // 10, 2 * TASK_BYTES_MIN)
    cases = [[1_000] * 2 * TASK_FILES_MIN, [TASK_BYTES_MIN] * 2, [10, 20, 30], []]
    cases += [[rng.randrange(limit) for _ in range(rng.choice((1, 30, 2_500)))] for limit in limits * 5]
    for sizes in cases:
        found = list(shares(enumerate(sizes)))
        assert [row for share in found for row in share] == list(range(len(sizes)))
        for share in found:
            some = [sizes[row] for row in share]
            assert sum(some) >= TASK_BYTES_MIN or len(some) == TASK_FILES_MIN or share is found[-1]
            assert sum(some[:-1]) < TASK_BYTES_MIN
            assert len(some) <= TASK_FILES_MIN
