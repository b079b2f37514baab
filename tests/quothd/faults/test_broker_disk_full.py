"""A full disk, on small real file systems: only writing stops, and it resumes by itself.

`disk_free_min` is a real reserve in one half of the tests. In the other half it is 0, and the broker and the
file of another program fill the disk to its last byte.
"""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, refused
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.disk.small_disks import KINDS, DiskKind, SmallDisk, mounted
from kit.machine.processes import listing
from kit.scale import LONG, times
from quothlog.recovery import verify
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
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


class BrokerOnDisk:
    """A broker with its data on a small disk, one client, and the acknowledged values."""

    def __init__(self, disk: SmallDisk, broker: BrokerProcess, peers: Peers, reserve: int) -> None:
        self.disk = disk
        self.broker = broker
        self.reserve = reserve
        self.stored: dict[str, list[bytes]] = defaultdict(list)
        self._peers = peers
        self.fast: FastPeer = peers.fast(broker)

    def publish(self, topic: str, value: bytes) -> None:
        """Publish a value. Raises the error of the answer."""
        self.fast.publish(topic, [value])
        self.stored[topic].append(value)

    def publish_until_refused(self, topic: str, size: int) -> None:
        """Publish values until there is no room for one of this size in bytes."""
        while True:
            try:
                self.publish(topic, b"%0*d" % (size, len(self.stored[topic])))
            except QuothError as problem:
                if problem.code != "disk_low":
                    raise
                return

    def exhaust(self, topic: str = "big") -> None:
        """Publish until there is no room for another byte."""
        for size in (100_000, 3_000, 1):
            self.publish_until_refused(topic, size)

    def fill(self) -> None:
        """Fill the disk by this broker; if it holds no reserve, another program takes the last bytes."""
        self.exhaust()
        if not self.reserve:
            eventually(self._take_the_rest, "the disk is full")

    def _take_the_rest(self) -> bool:
        """Take all free bytes; topics that hibernate meanwhile may give some back."""
        self.disk.fill()
        self.exhaust("other")
        self.exhaust()
        return self.disk.free_bytes == 0

    def again(self, number: int) -> None:
        """End the broker by a signal and start it again."""
        self.fast.close()
        assert self.broker.terminate(number) == (0 if number == signal.SIGTERM else -number)
        self.fast = self._peers.fast(self.broker.restart())

    def make_room(self) -> None:
        """Trim the topic that holds nearly everything."""
        gone = self.fast.call(TrimTopic(before=self.fast.describe("big").last), "big")
        assert gone.records
        del self.stored["big"][: gone.records]

    def assert_kept(self) -> None:
        """Check that reads return all acknowledged values, in order, and no others."""
        for topic, stored in self.stored.items():
            assert self.fast.values(topic) == stored, topic

    def assert_whole(self) -> None:
        """Check that the files hold only whole batches."""
        for folder in self.broker.topics_directory.iterdir():
            for summary in verify.summaries(folder):
                assert not summary.damages, summary
                assert not summary.unfinished, summary

    def check(self) -> None:
        """Check reads and files."""
        self.assert_kept()
        self.assert_whole()

    def segment_bytes(self, topic: str) -> int:
        """Return the size of a topic's segments in bytes, without a request to the broker."""
        total = 0
        for path in self.broker.topics_directory.glob(f"{topic}~*/*.seg"):
            with suppress(FileNotFoundError):  # it was removed after it had been listed
                total += path.stat().st_size
        return total


StartOnDisk = Callable[..., BrokerOnDisk]

Case = tuple[DiskKind, int]
CASES: list[Case] = [*(product(KINDS, (RESERVE, 0)) if LONG else zip(KINDS, (0, RESERVE), strict=True))]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{'reserve' if case[1] else 'last-byte'}")
def case(request: pytest.FixtureRequest) -> Case:
    """Return a file system and `disk_free_min`; in the long form all four pairs."""
    chosen: Case = request.param
    return chosen


@pytest.fixture
def disk(case: Case, tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount a small disk."""
    with mounted(case[0], tmp_path) as disk:
        yield disk


@pytest.fixture
def start_on_disk(disk: SmallDisk, case: Case, start_broker: StartBroker, peers: Peers) -> StartOnDisk:
    """Start a broker on the small disk, with settings; the broker ends before the disk does."""

    def start(reserve: int = case[1], **settings: object) -> BrokerOnDisk:
        broker = start_broker(directory=disk.path / "data", disk_free_min=reserve, **settings)
        return BrokerOnDisk(disk, broker, peers, reserve)

    return start


@pytest.fixture
def place(start_on_disk: StartOnDisk) -> BrokerOnDisk:
    """Start a broker on the small disk, with two topics that hold a little."""
    place = start_on_disk(check_interval=0.05, worker_timeout=0.3)
    place.fast.call(CreateTopic({"size_limit": MIB}), "big")
    for topic in ("big", "other"):
        place.publish(topic, b"first")
    return place


# -- errors -------------------------------------------------------------------------------------------------


def test_publishes_that_do_not_fit_are_refused_and_leave_nothing(place: BrokerOnDisk, peers: Peers) -> None:
    place.fill()
    place.check()
    if place.reserve:
        assert RESERVE // 2 < place.disk.free_bytes < RESERVE + 100_000
    else:
        assert place.disk.free_bytes == 0
    simple = peers.simple(place.broker)
    for topic in ("big", "other"):
        with refused("disk_low"):
            simple.publish(topic, b"x" * 5_000)
        assert burst(place.fast, topic, [b"x" * 5_000] * 20) == {"disk_low"}
    place.assert_kept()


def test_error_names_the_needed_and_the_free_bytes(place: BrokerOnDisk) -> None:
    place.fill()
    for topic in ("big", "new"):
        problem = place.fast.request(Publish(), topic, encoded([b"x" * 10_000])).reply
        assert isinstance(problem, QuothError)
        found = NEED_AND_HAVE.search(problem.text)
        assert found, problem.text
        free, needed = map(parse_size, found.groups())
        assert found.groups() == (format_size(free), format_size(needed)), "with units"
        assert free <= place.disk.free_bytes + 10_000
        assert needed >= place.reserve
        if topic == "big":
            assert place.reserve + 10_000 < needed < place.reserve + 11_000


def test_creation_that_is_refused_leaves_no_topic_and_no_folder(place: BrokerOnDisk) -> None:
    place.fill()
    before = listing(place.broker.topics_directory)
    for _ in range(3):
        with refused("disk_low"):
            place.publish("new", b"x")
        with refused("disk_low"):
            place.fast.call(CreateTopic(), "created")
    assert place.fast.call(ListTopics()).names == ["big", "other"]

    def made() -> list[str]:
        new = set(listing(place.broker.topics_directory)) - set(before)  # an index belongs to hibernation
        return [name for name in new if not name.endswith(".idx")]

    eventually(lambda: not made(), "nothing is left")
    place.make_room()
    place.publish("new", b"x")
    assert place.fast.values("new") == [b"x"]


def test_update_that_is_refused_leaves_the_old_settings(disk: SmallDisk, start_on_disk: StartOnDisk) -> None:
    place = start_on_disk(reserve=0, worker_timeout=60.0)
    place.fast.call(CreateTopic({"max_bytes": 10**9}), "big")
    place.exhaust()
    disk.fill()
    with refused("disk_low"):
        place.fast.call(UpdateTopic({"max_bytes": 2 * 10**9}), "big")
    assert place.fast.describe("big").settings["max_bytes"] == 10**9
    assert not [*disk.path.rglob("topic.json.tmp")]


# -- without writing ---------------------------------------------------------------------------------------


def test_reads_long_polls_and_trims_work_on_a_full_disk(place: BrokerOnDisk) -> None:
    """Topics hibernate and open, and the trim makes room for the records of the long polls."""
    place.fill()
    fast = place.fast
    waiting = {
        topic: fast.send_fetch(topic, fast.describe(topic).last, wait_ms=60_000) for topic in place.stored
    }
    eventually(lambda: fast.status().waits == len(waiting), "the fetches are pending")
    place.assert_kept()
    assert fast.call(Ping()).time
    for _ in range(2):
        eventually(lambda: fast.status(limit=0).active == 0, "the topics hibernate")
        for topic, stored in place.stored.items():
            assert fast.describe(topic).count == len(stored)
        place.assert_kept()  # opens them
    assert fast.status().waits == len(waiting)
    with refused("disk_low"):
        fast.publish("other", [b"x" * 5_000])
    place.make_room()
    for topic, correlation in waiting.items():
        place.publish(topic, b"at last")
        assert found_in(fast.answer_to(correlation)).values == [b"at last"]
    place.check()


@pytest.mark.parametrize("setting", ["max_bytes", "max_age"])
def test_retention_makes_room_without_a_request(
    disk: SmallDisk, start_on_disk: StartOnDisk, setting: str
) -> None:
    place = start_on_disk(check_interval=2.0, worker_timeout=60.0)
    limits = {"max_bytes": 3 * MIB} if setting == "max_bytes" else {"max_age": 1.0, "size_limit": MIB}
    place.fast.call(CreateTopic(limits), "kept")
    place.publish("other", b"first")

    def is_full() -> bool:
        disk.fill(leave=place.reserve + 8 * MIB)
        refusals = burst(place.fast, "kept", [bytes(200_000)] * 60)
        disk.fill()  # so that the header block of another segment has no room, either
        if "disk_low" in refusals and place.segment_bytes("kept") > 6 * MIB:
            return True
        disk.make_room()  # it was slower than the retention
        return False

    eventually(is_full, "the disk is full before the retention looks at it")
    burst(place.fast, "kept", [b"x"] * 60)  # what is left of its last block takes some of them
    eventually(lambda: place.segment_bytes("kept") <= 3 * MIB, "the old segments are gone")
    eventually(lambda: burst(place.fast, "kept", [b"new"]) == {""}, "writing resumes")
    place.fast.call(UpdateTopic({"max_age": 0}), "kept")  # so that the last one stays until it is read
    assert burst(place.fast, "kept", [b"newest"]) == {""}
    assert place.fast.values("kept")[-1] == b"newest"
    place.publish("other", b"x" * 10_000)
    assert place.fast.values("other") == place.stored["other"]
    place.assert_whole()


def burst(fast: FastPeer, topic: str, values: Sequence[bytes]) -> set[str]:
    """Publish values all at once; returns the codes of their answers, empty for stored ones."""
    sent = [fast.send_publish(topic, [value]) for value in values]
    return {code_of(answer) for answer in fast.answers_to(sent)}


# -- with room again ---------------------------------------------------------------------------------------


def test_writing_resumes_when_another_program_makes_room(place: BrokerOnDisk) -> None:
    for _ in range(3):
        place.disk.fill(leave=place.reserve + 2 * MIB)
        place.fill()
        pid = place.broker.pid
        place.disk.make_room()
        for topic in ("big", "other", "new"):
            place.publish(topic, b"after")
        assert place.broker.pid == pid
        assert place.broker.exit_status is None
        place.make_room()
    place.check()


def test_producer_waits_for_room_and_loses_and_doubles_nothing(place: BrokerOnDisk) -> None:
    place.disk.fill(leave=place.reserve + 2 * MIB)
    sent = [b"%06d" % number + bytes(1_000) for number in range(4_000)]
    with quoth.connect(place.broker.url) as client:
        producer = client.producer("made", batch=100, timeout=100.0)
        producer.send(sent[0])
        producer.flush()
        sending = threading.Thread(target=lambda: [producer.send(value) for value in sent[1:]])
        sending.start()

        def is_refused() -> bool:
            refusals = [one.refusal for one in list(producer._inflight._in_flight)]
            return any(refusal and refusal.code == "disk_low" for refusal in refusals)

        eventually(is_refused, "the disk is full")
        assert 0 < producer.acknowledged < len(sent)
        place.disk.make_room()
        sending.join()
        producer.close()
        assert producer.acknowledged == len(sent)
    assert place.fast.values("made") == sent
    place.assert_whole()


# -- start and end on a full disk ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_broker_starts_on_a_full_disk_and_serves_reads(place: BrokerOnDisk, number: int) -> None:
    place.fill()
    for _ in range(2):
        place.again(number)
        place.assert_kept()
        assert place.fast.call(ListTopics()).names == sorted(place.stored)
        for topic in ("big", "other"):
            with refused("disk_low"):
                place.fast.publish(topic, [b"x" * 5_000])
            info = place.fast.describe(topic)
            assert (info.count, info.problem) == (len(place.stored[topic]), "")
        place.assert_whole()
    place.make_room()
    for topic in ("big", "other"):
        place.publish(topic, b"after")
    place.again(number)
    place.check()


def test_topic_with_a_torn_batch_takes_writes_once_there_is_room(place: BrokerOnDisk, peers: Peers) -> None:
    """Its quarantine takes room; until there is some, whole batches are read and writes are refused."""
    place.fill()
    place.broker.kill()
    place.fast.close()
    (newest,) = sorted(place.broker.topics_directory.glob("other~*/*.seg"))[-1:]
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size - 8)
    torn = place.stored["other"].pop()
    place.disk.fill()
    place.fast = peers.fast(place.broker.restart())
    place.assert_kept()
    with refused("disk_low"):
        place.fast.publish("other", [torn])
    place.make_room()
    place.publish("other", b"after")
    place.assert_kept()


def test_segment_is_sealed_with_room_for_a_part_of_its_footer(
    disk: SmallDisk, start_on_disk: StartOnDisk
) -> None:
    place = start_on_disk(reserve=0)
    for blocks in range(6):
        for size in (10, 3_896):  # the second one ends half a footer before a block does
            topic = f"t{blocks}-{size}"
            place.fast.call(CreateTopic(), topic)
            place.publish(topic, bytes(size))
            disk.fill(leave=blocks * 4_096)
            assert code_of(place.fast.request(RollTopic(), topic)) in ("", "disk_low")
            place.publish_until_refused(topic, 3_000)
            place.check()
            disk.make_room()
            place.publish(topic, b"after")
    place.again(signal.SIGKILL)
    place.check()


@pytest.mark.timeout(times(120, 600))
def test_disk_that_fills_up_at_any_byte_costs_no_acknowledged_record(
    disk: SmallDisk, start_on_disk: StartOnDisk, rng: random.Random
) -> None:
    place = start_on_disk(reserve=0, check_interval=0.05, worker_timeout=rng.choice((0.01, 60.0)))
    for row in range(times(5, 150)):
        topic = f"t{row}"
        limits = {"size_limit": rng.choice((500, 3_000, 20_000, MIB))}
        place.fast.call(CreateTopic(limits), topic)
        disk.fill(leave=rng.randrange(8_000, 200_000))
        unknown = publish_beyond_the_end(place, topic, rng)
        found = place.fast.values(topic)
        place.stored[topic] += [value for value in found if value in unknown]
        disk.make_room()
        place.publish(topic, b"after %d" % row)
        place.check()
        place.fast.call(DeleteTopic(), topic)
        del place.stored[topic]


def publish_beyond_the_end(place: BrokerOnDisk, topic: str, rng: random.Random) -> set[bytes]:
    """Publish until nothing fits, and end the broker or not; returns values without an answer."""
    size_max = rng.choice((10, 200, 5_000, 50_000))
    refusals = 0
    while refusals < 30:
        values = some_values(rng, rng.randint(1, 4), size_max)
        sent = {place.fast.send_publish(topic, [value]): value for value in values}
        for correlation, value in sent.items():
            if code_of(place.fast.answer_to(correlation)):
                refusals += 1
            else:
                place.stored[topic].append(value)
        if rng.random() < 0.05:
            refusals += bool(code_of(place.fast.request(RollTopic(), topic)))
    place.assert_kept()
    end = rng.choice((None, None, signal.SIGTERM, signal.SIGKILL))
    if end is None:
        place.assert_whole()
        return set()
    unknown = some_values(rng, 20, size_max)
    for value in unknown:
        place.fast.send_publish(topic, [value])
    place.again(end)
    return set(unknown)


def some_values(rng: random.Random, count: int, size_max: int) -> list[bytes]:
    """Return distinct values."""
    return [rng.randbytes(12) + bytes(rng.randint(0, size_max)) for _ in range(count)]
