"""The watch of the memory of a process, and the counters of the kernel by which it ends connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from kit.clocks import SECOND, ManualClock
from kit.deadlines import eventually
from kit.machine.processes import needs_proc
from quothd.connections import kernel
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
        return self.watch.look(lambda size, _now: self.freed.append(size))


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
    watch.start(lambda _size, _now: pytest.fail("nothing is to be freed"))
    watch.stop()


@needs_proc
def test_the_process_and_the_machine_have_memory() -> None:
    assert FREE_BYTES_MAX < resident_bytes() + FREE_BYTES_MAX < memory_of_machine() + FREE_BYTES_MAX


# -- the kernel ------------------------------------------------------------------------------------------


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection, that of the client first."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with (
        closing(socket.create_server((request.param, 0), family=family)) as server,
        closing(socket.create_connection(server.getsockname()[:2])) as client,
        closing(server.accept()[0]) as accepted,
    ):
        yield client, accepted


def test_counters_tell_what_has_come_and_what_the_peer_has_acknowledged(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    descriptor, peer = accepted.fileno(), kernel.peer_of(accepted.fileno())
    client.sendall(bytes(1_000))
    accepted.sendall(bytes(5_000))

    def counters() -> kernel.Counters:
        found = kernel.counters_of(descriptor, peer)
        assert found is not None
        return found

    eventually(lambda: counters() == (5_000, 1_000, 0), "everything has arrived")


def test_a_connection_is_ended_for_its_peer_alone(pair: tuple[socket.socket, socket.socket]) -> None:
    """The number of a descriptor may belong to another connection by now, or to a file."""
    client, accepted = pair
    descriptor, peer = accepted.fileno(), kernel.peer_of(accepted.fileno())
    assert not kernel.end(descriptor, "192.0.2.1:7")
    assert kernel.counters_of(descriptor, "192.0.2.1:7") is None
    with open("/dev/null", "rb") as file:
        assert not kernel.end(file.fileno(), peer)
        assert kernel.counters_of(file.fileno(), "") is None
    assert kernel.end(descriptor, peer)
    client.settimeout(5)
    assert client.recv(1) == b""
    accepted.close()
    assert not kernel.end(descriptor, peer)


def test_a_connection_over_ipc_has_the_bytes_that_are_not_read() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        one.sendall(bytes(500))
        found = kernel.counters_of(one.fileno(), "")
        assert found is not None
        assert found[:2] == (-1, -1)
        assert found.unread >= 500
        assert len(other.recv(500)) == 500
        assert kernel.counters_of(one.fileno(), "") == (-1, -1, 0)
