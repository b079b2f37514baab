"""The watch of the memory of a process."""

from __future__ import annotations

import pytest

from kit.clocks import SECOND, ManualClock
from kit.machine.processes import needs_proc
from quothd.connections.memory import (
    FREE_BYTES_MAX,
    FREED_PART,
    INTERPRETER_BYTES,
    LOOK_S,
    LOOK_SOON_S,
    REFUSED_PART,
    SHORT_PART,
    MemoryWatch,
    memory_of_machine,
    resident_bytes,
)

MIB = 2**20
LIMIT = 1_000 * MIB


class MeasuredProcess:
    """A process whose memory a test sets. freed: what the watch wanted to be freed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.resident = 50 * MIB
        self.allocated: int | None = 20 * MIB
        self.freed: list[int] = []
        measures = self.clock.monotonic, lambda: self.resident, lambda: self.allocated
        self.watch = MemoryWatch(LIMIT, *measures)

    def look(self) -> float:
        self.clock.step(SECOND)
        return self.watch.look(lambda size: self.freed.append(size))


@pytest.fixture
def measured() -> MeasuredProcess:
    return MeasuredProcess()


def test_memory_is_freed_above_a_part_of_the_limit_and_looked_at_more_often_before(
    measured: MeasuredProcess,
) -> None:
    assert measured.look() == LOOK_S
    measured.resident = measured.allocated = 400 * MIB
    assert measured.look() == LOOK_SOON_S
    assert measured.freed == []
    measured.resident = measured.allocated = 600 * MIB
    measured.look()
    assert measured.freed == [FREED_PART * (600 * MIB - int(LIMIT * SHORT_PART))]
    assert not measured.watch.is_short
    measured.resident = measured.allocated = int(LIMIT * REFUSED_PART) + MIB
    measured.look()
    assert measured.watch.is_short
    measured.resident = 50 * MIB
    measured.look()
    assert not measured.watch.is_short


def test_memory_that_is_free_but_resident_ends_no_connection(measured: MeasuredProcess) -> None:
    measured.resident = 900 * MIB
    measured.look()
    assert measured.freed == []
    measured.allocated = 480 * MIB
    measured.look()
    assert measured.freed == [FREED_PART * (480 * MIB + INTERPRETER_BYTES - int(LIMIT * SHORT_PART))]


def test_without_the_numbers_of_the_allocator_resident_memory_counts(measured: MeasuredProcess) -> None:
    measured.resident, measured.allocated = 700 * MIB, None
    measured.look()
    assert measured.freed == [FREED_PART * (700 * MIB - int(LIMIT * SHORT_PART))]


def test_without_a_limit_there_is_no_thread() -> None:
    watch = MemoryWatch(0, ManualClock().monotonic)
    watch.start(lambda _size: pytest.fail("nothing is to be freed"))
    watch.stop()


@needs_proc
def test_the_process_and_the_machine_have_memory() -> None:
    assert FREE_BYTES_MAX < resident_bytes() + FREE_BYTES_MAX < memory_of_machine() + FREE_BYTES_MAX
