"""A broker that dies before any change of the disk: each request is executed completely or not at all."""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import NAME, pending
from kit.broker.operations import publish, publish_staged
from kit.broker.transactions import LOADER, staged
from kit.disk.doubles import CHANGES, FaultyDisk, Kind
from kit.disk.logs import values
from kit.scale import some
from quothd.requests.pending_request import PendingRequest
from quothlog import Log
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    Operation,
    RollTopic,
    Stage,
    TrimTopic,
    UpdateTopic,
)

Stored = list[bytes] | None
"""The values of the topic, None if there is none."""

SCRIPT: list[tuple[Callable[[], PendingRequest], Stored]] = [
    (lambda: pending(CreateTopic({"count_limit": 4})), []),
    (lambda: publish("written", b"1", b"2"), [b"1", b"2"]),
    (lambda: publish("synced", b"3"), [b"1", b"2", b"3"]),
    (lambda: publish("written", b"4", b"5"), [b"1", b"2", b"3", b"4", b"5"]),
    (lambda: pending(UpdateTopic({"durability": "synced"})), [b"1", b"2", b"3", b"4", b"5"]),
    (lambda: pending(Stage(LOADER, 1, 0, 7), staged([b"6"], 1)), [b"1", b"2", b"3", b"4", b"5"]),
    (lambda: publish_staged(b"6"), [b"1", b"2", b"3", b"4", b"5", b"6"]),
    (lambda: pending(RollTopic()), [b"1", b"2", b"3", b"4", b"5", b"6"]),
    (lambda: pending(TrimTopic(POINTER_MAX)), []),
    (lambda: publish("written", b"7"), [b"7"]),
    (lambda: pending(DeleteTopic()), None),
    (lambda: publish("synced", b"8"), [b"8"]),
]
"""Requests, each with what is stored behind it."""


class DeadlyDisk(FaultyDisk):
    """A disk that kills the process instead of the n-th change."""

    def __init__(self, nth: int) -> None:
        super().__init__(syncs=False)
        self._left = nth

    def struck(self, kind: Kind, path: Path) -> None:
        self._left -= kind in CHANGES
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def live(directory: Path, disk: FaultyDisk) -> None:
    """Go through the script, with hibernation in between; count the answers in a file."""
    with (directory / "answered").open("ab", buffering=0) as answered:
        broker = MemoryBroker(directory / "data", disk, worker_timeout=60.0)
        for row, (ask, _) in enumerate(SCRIPT):
            request = broker.ask(ask())
            broker.settle()
            assert broker.code(request) == ""
            answered.write(b".")
            broker.pass_time(1_000.0 if row % 4 == 2 else 2.0)
            broker.settle()


def start(directory: Path, disk: FaultyDisk) -> MemoryBroker:
    broker = MemoryBroker(directory / "data", disk)
    broker.pass_time(2.0)
    broker.settle()
    return broker


def dies(nth: int, directory: Path, act: Callable[[Path, FaultyDisk], object]) -> bool:
    """Let another process do this until the n-th change; False if it did all of it before."""
    child = os.fork()
    if not child:
        try:
            act(directory, DeadlyDisk(nth))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return bool(status)


def test_death_at_each_change_loses_nothing(tmp_path: Path, rng: random.Random) -> None:
    """Nor does another death, at a change of the next start."""
    calm = FaultyDisk(syncs=False)
    (tmp_path / "calm").mkdir()
    live(tmp_path / "calm", calm)
    states = [None, *(stored for _, stored in SCRIPT), SCRIPT[-1][1]]
    for nth in some(range(1, calm.count(*CHANGES) + 1), rng, 8):
        directory = tmp_path / str(nth)
        directory.mkdir()
        assert dies(nth, directory, live)
        dies(rng.randint(1, 8), directory, start)
        answered = (directory / "answered").stat().st_size
        broker = start(directory, FaultyDisk(syncs=False))
        exists = NAME in broker.dispatcher.registry.entries
        asked = broker.ask(publish("synced", b"after"))
        broker.settle()
        assert broker.code(asked) == ""
        metadata = broker.dispatcher.registry.entries[NAME].metadata
        path = metadata.path
        assert not metadata.problem, f"change {nth}: its settings are whole"
        assert [*(directory / "data/topics").iterdir()] == [path]
        broker.dispatcher.end(broker.clock.monotonic() + 1.0)
        assert path is not None
        with Log.open(path) as log:
            *stored, last = values(log)
            assert log.findings.damaged_bytes == log.findings.lost_records == 0
        assert last == b"after"
        before, after = states[answered : answered + 2]
        found = stored if exists else None
        made: Stored = [] if before is None else before  # the publish that makes a topic stores behind that
        assert found in (before, made, after) or is_trimmed(answered, before, stored), f"change {nth}"


def is_trimmed(answered: int, before: Stored, stored: Sequence[bytes]) -> bool:
    """True if the next request was a trim, which removes one segment after the other."""
    is_trim = SCRIPT[answered][0]().operation is Operation.TRIM
    return is_trim and before is not None and before[len(before) - len(stored) :] == stored
