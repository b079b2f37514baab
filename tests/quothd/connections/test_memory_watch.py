"""The watch of the memory of a process."""

from __future__ import annotations

import threading
from contextlib import closing
from math import inf

import pytest

from kit.clocks import SECOND, ManualClock
from kit.deadlines import DEADLINE_S
from kit.machine.processes import needs_proc
from quothd.connections import memory
from quothd.connections.memory import (
    FREED_PART,
    INTERPRETER_BYTES,
    LOOK_S,
    LOOK_SOON_S,
    OWN_PART,
    OWN_S,
    OWN_SAMPLES,
    REFUSED_PART,
    SHORT_PART,
    MemoryWatch,
)
from quothd.service.process_memory import ResidentMemory, memory_of_machine

MIB = 2**20
LIMIT = 1_000 * MIB


class MeasuredProcess:
    """A process whose memory a test sets. held: by connections. freed: what the watch wanted to be freed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.resident = 50 * MIB
        self.allocated: int | None = 20 * MIB
        self.held: float = inf
        self.freed: list[int] = []
        measures = self.clock.monotonic, lambda: self.resident, lambda: self.allocated
        self.watch = MemoryWatch(LIMIT, *measures)

    def held_bytes(self) -> float:
        return self.held

    def end_largest(self, size: int, _now: float) -> int:
        self.freed.append(size)
        return size

    def look(self, size: int = 0) -> float:
        """Let the watch look, at so many bytes of memory."""
        if size:
            self.resident = self.allocated = size
        self.clock.step(SECOND)
        return self.watch.look(self)


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


def test_memory_that_no_connection_holds_leaves_room_for_connections(measured: MeasuredProcess) -> None:
    """Many topics may take more than the part above which connections are ended."""
    measured.held = 0
    for _ in range(10):
        measured.look(500 * MIB)
    measured.freed.clear()
    measured.held = 200 * MIB
    measured.look(600 * MIB)
    assert measured.freed == []
    measured.look(700 * MIB)
    assert measured.freed == [FREED_PART * (700 * MIB - 500 * MIB - int((LIMIT - 500 * MIB) * OWN_PART))]
    for _ in range(int(OWN_S * OWN_SAMPLES)):
        measured.look(300 * MIB)
    measured.freed.clear()
    measured.look(600 * MIB)
    assert measured.freed == [FREED_PART * (600 * MIB - int(LIMIT * SHORT_PART))]


def test_requests_are_refused_only_above_what_connections_may_hold(measured: MeasuredProcess) -> None:
    measured.held = 0
    measured.look(650 * MIB)
    measured.freed.clear()
    measured.held = inf
    measured.look(725 * MIB)
    assert not measured.watch.is_short, "nothing is ended yet to make room"
    assert measured.freed == []
    measured.look(750 * MIB)
    assert measured.watch.is_short
    assert measured.freed != []


def test_memory_that_may_be_of_connections_leaves_no_room_for_them(measured: MeasuredProcess) -> None:
    for _ in range(10):
        measured.look(500 * MIB)
    assert measured.watch.own == 0
    assert measured.freed == [FREED_PART * (500 * MIB - int(LIMIT * SHORT_PART))] * 10


def test_a_look_that_fails_is_logged_and_the_next_one_follows(
    measured: MeasuredProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "FAILED_S", 0.0)
    looks = iter([OSError("no memory"), 50 * MIB])
    looked = threading.Event()

    def resident() -> int:
        match next(looks, None):
            case Exception() as problem:
                raise problem
            case None:
                looked.set()
        return 50 * MIB

    watch = MemoryWatch(LIMIT, measured.clock.monotonic, resident)
    watch.start(measured)
    assert looked.wait(DEADLINE_S)
    watch.stop()
    assert "memory_watch_failed" in caplog.text


def test_without_the_numbers_of_the_allocator_resident_memory_counts(measured: MeasuredProcess) -> None:
    measured.resident, measured.allocated = 700 * MIB, None
    measured.look()
    assert measured.freed == [FREED_PART * (700 * MIB - int(LIMIT * SHORT_PART))]


def test_without_a_limit_there_is_no_thread() -> None:
    watch = MemoryWatch(0, ManualClock().monotonic)
    watch.start(MeasuredProcess())
    watch.stop()


@needs_proc
def test_the_process_and_the_machine_have_memory() -> None:
    with closing(ResidentMemory()) as own:
        assert 0 < own.bytes() < memory_of_machine()
