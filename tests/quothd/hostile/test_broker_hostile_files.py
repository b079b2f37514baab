"""Files of a data directory that were replaced while the broker was away."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, code_of
from kit.disk.corruptions import BATCHES, RECORDS, Scene, leave_behind
from kit.machine.processes import needs_proc, resident_bytes
from quothwire.protocol.messages import Fetch

SPARSE_BYTES = 2**40
"""A search that read the zeros would take an hour: it reads some hundred MB a second."""


def used_bytes(directory: Path) -> int:
    """Return the bytes that files take on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def records_of(fast: FastPeer, topic: str) -> list[bytes]:
    """Read all that can be read, over damage."""
    after, found = 0, []
    while True:
        answer = fast.request(Fetch(after=after), topic)
        assert code_of(answer) == ""
        part = fast.fetch(topic, after)
        found += part.values
        if part.reply.next <= after:
            return found
        after = part.reply.next


@needs_proc
@pytest.mark.parametrize("kept", [0, 4_096, 5_000, 2**20])
@pytest.mark.parametrize("row", [1, 2], ids=["sealed", "active"])
def test_a_segment_that_is_a_sparse_file_takes_neither_memory_nor_disk(
    tmp_path: Path, start_broker: StartBroker, peers: Peers, kept: int, row: int
) -> None:
    """The other segments are read. kept: bytes at its beginning that stay as they were."""
    left = leave_behind(tmp_path / "left", killed=True)
    scene = Scene(left, tmp_path / "data")
    path = scene.segments[row]
    with path.open("r+b") as file:
        file.truncate(min(kept, path.stat().st_size))
        file.truncate(SPARSE_BYTES)
    used = used_bytes(scene.directory)
    broker = start_broker(directory=scene.directory, worker_timeout=600, recovering_after=60)
    fast = peers.fast(broker)
    other = fast.values("other")
    assert len(other) == len(left.published)
    before = resident_bytes(broker.pid)
    values = records_of(fast, "t")
    whole = [one.value for number, one in enumerate(left.published) if number // (BATCHES * RECORDS) != row]
    assert [value for value in whole if value not in values] == []
    assert resident_bytes(broker.pid) - before < 32 * 2**20
    assert used_bytes(scene.directory) - used < 32 * 2**20
    fast.publish("other", [b"goes on"])
