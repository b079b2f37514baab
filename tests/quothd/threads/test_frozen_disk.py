"""A real file system on which every write stalls, with a daemon at work on it."""

from __future__ import annotations

from pathlib import Path

from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers, replied
from kit.deadlines import eventually
from kit.disk.small_disks import mounted
from kit.machine.processes import needs_proc
from quothwire.protocol.messages import Ping


@needs_proc
def test_a_frozen_file_system_delays_only_requests_that_write(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The front end that waits in the write is replaced, once; reads and pings go on."""
    with mounted("ext4", tmp_path) as disk:
        settings = {"worker_timeout": 60, "sync_interval": 0.01, "disk_free_min": 0}
        broker = start_broker(directory=disk.path / "data", **settings)
        fast, other = peers.fast(broker), peers.fast(broker)
        for topic in ("slow", "other"):
            fast.publish(topic, [b"before"])
        before = other.status(limit=0).counters["takeovers"]
        eventually(lambda: other.status(limit=0).counters["syncs"] >= 2, "nothing is left to sync")
        with disk.frozen():
            sent = fast.send_publish("slow", [b"stalled"])
            for _ in range(50):
                other.call(Ping())
                assert [record.value for record in other.read_all("other")] == [b"before"]
            eventually(
                lambda: other.status(limit=0).counters["takeovers"] == before + 1, "another thread serves"
            )
            assert fast.is_silent(0)
        assert replied(fast.answer_to(sent)).count == 1
        assert [record.value for record in other.read_all("slow")] == [b"before", b"stalled"]
        broker.close()
