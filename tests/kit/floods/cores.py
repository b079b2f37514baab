"""Processors for a broker, for its good client and for its attackers."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def shared_out() -> tuple[set[int], set[int]]:
    """Return the cores of the broker and its good client, and those of attackers: apart if there are two.

    Attackers that take the processor from the broker would measure the machine and not the broker.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def pin(pid: int, cores: set[int]) -> None:
    """Let all threads of a process, and those that it will start, run on these cores only."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)
