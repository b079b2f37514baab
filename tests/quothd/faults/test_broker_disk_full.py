"""A full disk, on small real file systems, and limits of the process: writing stops, and resumes by itself.

Failures of single calls are in the tables of the topics and of the log.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, hibernate, refused
from kit.deadlines import eventually
from kit.disk.logs import encoded, made_since
from kit.disk.small_disks import KINDS, DiskKind, SmallDisk, mounted
from kit.machine.processes import descriptors_left, file_bytes, listing, needs_prlimit
from kit.scale import LONG
from quoth import Unavailable
from quothlog.recovery import verify
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    CreateTopic,
    ListTopics,
    Ping,
    Publish,
    RollTopic,
    TrimTopic,
    UpdateTopic,
)
from quothwire.text.quantity import format_size, parse_size

MIB = 2**20
RESERVE = MIB
NEED_AND_HAVE = re.compile(r"([\d.,]+ \w+) are free, ([\d.,]+ \w+) are needed")
CASES = [*(product(KINDS, (RESERVE, 0)) if LONG else zip(KINDS, (0, RESERVE), strict=True))]
"""File systems with `disk_free_min`: a reserve, or 0 and a disk that is full to its last byte."""


class BrokerOnDisk:
    """A broker with its data on a small disk, a client, and the acknowledged values of two topics."""

    def __init__(self, disk: SmallDisk, broker: BrokerProcess, peers: Peers, reserve: int) -> None:
        self.disk = disk
        self.broker = broker
        self.reserve = reserve
        self.stored: dict[str, list[bytes]] = defaultdict(list)
        self._peers = peers
        self.fast: FastPeer = peers.fast(broker)

    def publish(self, topic: str, value: bytes) -> str:
        """Publish a value; returns the code of the answer."""
        code = code_of(self.fast.request(Publish(), topic, encoded([value])))
        if not code:
            self.stored[topic].append(value)
        return code

    def fill(self) -> None:
        """Publish until nothing fits; if there is no reserve, another program takes the last bytes."""

        def is_full() -> bool:
            for topic, size in (("big", 100_000), ("big", 3_000), ("other", 1), ("big", 1)):
                while not (code := self.publish(topic, bytes(size))):
                    pass
                assert code == "disk_low"
            if not self.reserve:
                self.disk.fill()
            return bool(self.reserve or not self.disk.free_bytes)

        eventually(is_full, "topics that hibernate meanwhile give nothing back")

    def restart(self, number: int) -> None:
        self.fast.close()
        assert self.broker.terminate(number) == (0 if number == signal.SIGTERM else -number)
        self.fast = self._peers.fast(self.broker.restart())

    def trim(self) -> None:
        """Make room by a trim of the topic that holds nearly everything."""
        gone = self.fast.call(TrimTopic(before=self.fast.describe("big").last), "big").records
        assert gone
        del self.stored["big"][:gone]

    def check(self) -> None:
        """Check that all acknowledged values are read, in order, and no others."""
        for topic, stored in self.stored.items():
            assert self.fast.values(topic) == stored, topic
            info = self.fast.describe(topic)
            assert (info.count, info.problem) == (len(stored), "")


@pytest.mark.parametrize(("kind", "reserve"), CASES)
def test_a_full_disk_refuses_writes_alone_until_there_is_room(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, kind: DiskKind, reserve: int
) -> None:
    """Also after a restart and a crash. Reads, long polls and trims go on, topics hibernate and open."""
    with mounted(kind, tmp_path) as disk:
        settings = {"disk_free_min": reserve, "check_interval": 0.05, "worker_timeout": 0.3}
        broker = start_broker(directory=disk.path / "data", recovering_after=60, **settings)
        place = BrokerOnDisk(disk, broker, peers, reserve)
        place.fast.call(CreateTopic({"size_limit": MIB}), "big")
        place.publish("other", b"first")
        place.fill()
        check_errors(place)
        waiting = place.fast.send_fetch("other", place.fast.describe("other").last, wait_ms=60_000)
        hibernate(place.fast)
        place.check()
        assert place.fast.call(Ping()).time
        place.trim()
        assert [place.publish(topic, b"at last") for topic in ("other", "big", "new")] == [""] * 3
        assert found_in(place.fast.answer_to(waiting)).values == [b"at last"]
        for number in (signal.SIGTERM, signal.SIGKILL):
            disk.fill(leave=reserve + 2 * MIB)
            place.fill()
            place.restart(number)
            place.check()
            assert [place.publish(topic, b"x" * 5_000) for topic in ("big", "other")] == ["disk_low"] * 2
            disk.make_room()
            assert [place.publish(topic, b"after") for topic in ("big", "other")] == [""] * 2
        place.check()
        for folder in broker.topics_directory.iterdir():
            assert not any(one.damages or one.unfinished for one in verify.summaries(folder))
        broker.close()


def check_errors(place: BrokerOnDisk) -> None:
    """Check that what needs room is refused, with the bytes that it needs, and leaves nothing."""
    fast, before = place.fast, listing(place.broker.topics_directory)
    settings = fast.describe("big").settings
    for topic in ("big", "new"):
        problem = fast.request(Publish(), topic, encoded([b"x" * 10_000])).reply
        assert isinstance(problem, QuothError)
        found = NEED_AND_HAVE.search(problem.text)
        assert found, problem.text
        free, needed = map(parse_size, found.groups())
        assert found.groups() == (format_size(free), format_size(needed)), "with units"
        assert free <= place.disk.free_bytes + 10_000
        assert needed >= place.reserve
    with refused("disk_low"):
        fast.call(CreateTopic(), "created")
    if not place.reserve:
        with refused("disk_low"):
            fast.call(UpdateTopic({"max_bytes": 10**9}), "big")
        assert fast.describe("big").settings == settings
    assert fast.call(ListTopics()).names == ["big", "other"]
    assert made_since(place.broker.topics_directory, before) == []


# -- limits of the process ----------------------------------------------------------------------------------

LIMIT = 64 * 2**10


@needs_prlimit
def test_a_request_above_the_limit_of_a_file_names_the_limit_and_stores_nothing(
    start_broker: StartBroker,
) -> None:
    """The error is another one than that of a full disk."""
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("t", b"before")
        with file_bytes(broker.pid, LIMIT):
            with pytest.raises(Unavailable) as caught:
                client.publish("t", b"x" * 2 * LIMIT)
            assert caught.value.code == "disk_low"
            assert "a file of this process holds at most 64 KiB (RLIMIT_FSIZE)" in caught.value.text
            assert "the disk is not full" in caught.value.text
            assert "LimitFSIZE=" in str(caught.value.hint)
        with file_bytes(broker.pid, 0), pytest.raises(Unavailable, match="RLIMIT_FSIZE"):
            client.create_topic("new")
        client.publish("t", b"x" * 2 * LIMIT)
        assert [len(message.value) for message in client.read("t")] == [6, 2 * LIMIT]


@needs_prlimit
def test_a_broker_without_descriptors_is_busy_only_where_a_file_has_to_be_opened(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(sync_interval=60, check_interval=60)
    with peers.fast(broker) as fast:
        for topic in ("hibernating", "open"):
            fast.publish(topic, [b"before"])
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart(worker_timeout=60))
    eventually(
        lambda: (fast.status().active, fast.status().counters["unopened"]) == (0, 0), "all topics hibernate"
    )
    fast.publish("open", [b"before"])
    files = listing(broker.topics_directory)
    with descriptors_left(broker.pid, 0):
        for topic in ("hibernating", "new"):
            with refused("busy"):
                fast.publish(topic, [b"x"])
        for request, topic in ((CreateTopic(), "new"), (RollTopic(), "open"), (RollTopic(), "hibernating")):
            with refused("busy"):
                fast.call(request, topic)
        for durability in ("written", "synced"):
            fast.publish("open", [b"x"], durability)
    assert listing(broker.topics_directory) == files
    for left in range(1, 7):
        with descriptors_left(broker.pid, left):
            assert code_of(fast.request(Publish(), "hibernating", encoded([b"y"]))) in ("", "busy")
    assert fast.call(RollTopic(), "open").segments == 2
    fast.publish("new", [b"x"])
    fast.publish("hibernating", [b"after"])
    assert fast.values("open") == [b"before", b"before", b"x", b"x"]
    assert fast.values("hibernating")[-1] == b"after"
