"""A full disk, on small real file systems: nothing but writing stops, and writing resumes by itself.

`disk_free_min` is a real reserve in one half of the tests; in the other it is 0 and the disk is filled to its
last byte, by the broker and by the file of another program.
"""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, refused
from kit.deadlines import eventually
from kit.disk.small_disks import KINDS, DiskKind, SmallDisk, mounted
from kit.machine.processes import listing
from kit.scale import LONG, times
from quoth import Producer
from quothlog.recovery import verify
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    ListTopics,
    Ping,
    RollTopic,
    TrimTopic,
    UpdateTopic,
)
from quothwire.text.quantity import format_size, parse_size

MIB = 2**20
RESERVE = MIB
NEED_AND_HAVE = re.compile(r"([\d.,]+ \w+) are free, ([\d.,]+ \w+) are needed")


class Place:
    """A broker with its data on a small disk, one client, and what was acknowledged."""

    def __init__(self, disk: SmallDisk, broker: BrokerProcess, peers: Peers, reserve: int) -> None:
        self.disk = disk
        self.broker = broker
        self.reserve = reserve
        self.stored: dict[str, list[bytes]] = defaultdict(list)
        self._peers = peers
        self.fast: FastPeer = peers.fast(broker)

    def publish(self, topic: str, value: bytes) -> None:
        """Publish a value. Raises the refusal."""
        self.fast.publish(topic, [value])
        self.stored[topic].append(value)

    def publish_until_refused(self, topic: str, size: int) -> None:
        """Publish values until there is no room for one of so many bytes."""
        while True:
            try:
                self.publish(topic, b"%0*d" % (size, len(self.stored[topic])))
            except QuothError as problem:
                if problem.code != "disk_low":
                    raise
                return

    def exhaust(self, topic: str = "big") -> None:
        """Publish until there is no room for a single byte more."""
        for size in (100_000, 3_000, 1):
            self.publish_until_refused(topic, size)

    def fill(self) -> None:
        """Fill the disk by this broker; if it holds no reserve, another program takes the last bytes."""
        self.exhaust()
        if not self.reserve:
            eventually(self._take_the_rest, "the disk is full")

    def _take_the_rest(self) -> bool:
        """A topic that falls asleep meanwhile gives back what its index took, if there is no room for it."""
        self.disk.fill()
        self.exhaust("other")
        self.exhaust()
        return self.disk.free_bytes == 0

    def again(self, number: int) -> None:
        """End the broker by a signal and start it again."""
        self.fast.close()
        assert self.broker.terminate(number) == (0 if number == signal.SIGTERM else -number)
        self.restart()

    def restart(self) -> None:
        """Start the broker again."""
        self.fast = self._peers.fast(self.broker.restart())

    def make_room(self) -> None:
        """Trim the topic that holds nearly everything."""
        gone = self.fast.call(TrimTopic(before=self.fast.describe("big").last), "big")
        assert gone.records
        del self.stored["big"][: gone.records]

    def values(self, topic: str) -> list[bytes]:
        """What a reader finds."""
        return [record.value for record in self.fast.read_all(topic)]

    def assert_kept(self) -> None:
        """Whatever was acknowledged can be read, in order, and nothing else."""
        for topic, stored in self.stored.items():
            assert self.values(topic) == stored, topic

    def assert_whole(self) -> None:
        """The files hold whole batches and nothing else."""
        for folder in self.broker.topics_directory.iterdir():
            for summary in verify.summaries(folder):
                assert not summary.damages, summary
                assert not summary.unfinished, summary

    def segment_bytes(self, topic: str) -> int:
        """What a topic's segments take on the disk, found without asking the broker."""
        return sum(size_of(path) for path in self.broker.topics_directory.glob(f"{topic}~*/*.seg"))


def size_of(path: Path) -> int:
    """Bytes of a file; none if it was removed after it had been listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


Case = tuple[DiskKind, int]
EVERY_CASE: list[Case] = [*product(KINDS, (RESERVE, 0))]
CASES = EVERY_CASE if LONG else [*zip(KINDS, (0, RESERVE), strict=True)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{'reserve' if case[1] else 'last-byte'}")
def case(request: pytest.FixtureRequest) -> Case:
    """A file system and `disk_free_min`; in the long form all four pairs."""
    chosen: Case = request.param
    return chosen


@pytest.fixture
def disk(case: Case, tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk."""
    with mounted(case[0], tmp_path) as disk:
        yield disk


@pytest.fixture
def reserve(case: Case) -> int:
    """`disk_free_min`."""
    return case[1]


@pytest.fixture
def place(disk: SmallDisk, reserve: int, start_broker: StartBroker, peers: Peers) -> Place:
    """A broker on the small disk, with two topics that hold a little."""
    broker = start_broker(
        directory=disk.path / "data", disk_free_min=reserve, check_interval=0.05, worker_timeout=0.3
    )
    place = Place(disk, broker, peers, reserve)
    place.fast.call(CreateTopic({"size_limit": MIB}), "big")
    for topic in ("big", "other"):
        place.publish(topic, b"first")
    return place


def needs(problem: QuothError) -> tuple[int, int]:
    """The bytes that a refusal says are needed and free."""
    found = NEED_AND_HAVE.search(problem.text)
    assert found, problem.text
    free, needed = map(parse_size, found.groups())
    assert found.groups() == (format_size(free), format_size(needed)), "in words"
    return needed, free


def asleep(fast: FastPeer) -> bool:
    """Does every topic hibernate?"""
    return fast.status(limit=0).active == 0


# -- what is refused ----------------------------------------------------------------------------------------


def test_what_does_not_fit_leaves_nothing(place: Place) -> None:
    """C24: batches and rolls are whole or not there, to the last byte of the disk."""
    place.fill()
    place.assert_kept()
    place.assert_whole()
    if place.reserve:
        assert RESERVE // 2 < place.disk.free_bytes < RESERVE + 100_000
    else:
        assert place.disk.free_bytes == 0


def test_other_topics_and_the_simple_protocol_are_refused_alike(place: Place, peers: Peers) -> None:
    """C24: several batches of one burst too, each for itself."""
    place.fill()
    simple = peers.simple(place.broker)
    for topic in ("big", "other"):
        with refused("disk_low"):
            simple.publish(topic, b"x" * 5_000)
        sent = [place.fast.send_publish(topic, [b"x" * 5_000]) for _ in range(20)]
        assert {code_of(answer) for answer in place.fast.answers_to(sent)} == {"disk_low"}
    place.assert_kept()


@pytest.mark.parametrize("topic", ["big", "new"])
def test_a_refusal_says_need_and_have(place: Place, topic: str) -> None:
    """C24: in bytes, so that somebody knows how much to make free."""
    place.fill()
    (answer,) = place.fast.answers_to([place.fast.send_publish(topic, [b"x" * 10_000])])
    assert isinstance(answer.reply, QuothError)
    needed, free = needs(answer.reply)
    assert free <= place.disk.free_bytes + 10_000
    assert needed >= place.reserve
    if topic == "big":
        assert place.reserve + 10_000 < needed < place.reserve + 11_000


def test_a_topic_that_is_refused_leaves_nothing_behind(place: Place) -> None:
    """C24: no name, no folder, in whichever way it was to be made; with room it is made."""
    place.fill()
    before = listing(place.broker.topics_directory)
    for _ in range(3):
        with refused("disk_low"):
            place.publish("new", b"x")
        with refused("disk_low"):
            place.fast.call(CreateTopic(), "created")
    assert place.fast.call(ListTopics()).names == ["big", "other"]

    def made() -> list[str]:
        """Topics that fall asleep write an index, or try to."""
        new = set(listing(place.broker.topics_directory)) - set(before)
        return [name for name in new if not name.endswith(".idx")]

    eventually(lambda: not made(), "nothing is left")
    place.make_room()
    place.publish("new", b"x")
    assert place.values("new") == [b"x"]


def test_settings_that_cannot_be_written_leave_the_old_ones(
    disk: SmallDisk, start_broker: StartBroker, peers: Peers
) -> None:
    """C24: and no unfinished file beside them."""
    broker = start_broker(directory=disk.path / "data", disk_free_min=0, worker_timeout=60.0)
    place = Place(disk, broker, peers, 0)
    place.fast.call(CreateTopic({"max_bytes": 10**9}), "big")
    place.exhaust()
    disk.fill()
    with refused("disk_low"):
        place.fast.call(UpdateTopic({"max_bytes": 2 * 10**9}), "big")
    assert place.fast.describe("big").settings["max_bytes"] == 10**9
    assert not [*disk.path.rglob("topic.json.tmp")]


# -- what goes on -------------------------------------------------------------------------------------------


def test_everything_but_writing_goes_on(place: Place) -> None:
    """C24: reading, waiting, asking, sleeping and waking; trimming makes room, and who waits is answered."""
    place.fill()
    fast = place.fast
    waiting = {
        topic: fast.send_fetch(topic, fast.describe(topic).last, wait_ms=60_000) for topic in place.stored
    }
    eventually(lambda: fast.status().waits == len(waiting), "they wait")
    place.assert_kept()
    assert fast.call(Ping()).time
    for _ in range(2):
        eventually(lambda: asleep(fast), "the topics sleep")
        for topic, stored in place.stored.items():
            assert fast.describe(topic).count == len(stored)
        place.assert_kept()  # wakes them
    assert fast.status().waits == len(waiting)
    with refused("disk_low"):
        fast.publish("other", [b"x" * 5_000])
    place.make_room()
    for topic, correlation in waiting.items():
        place.publish(topic, b"at last")
        assert found_in(fast.answer_to(correlation)).values == [b"at last"]
    place.assert_kept()
    place.assert_whole()


@pytest.mark.parametrize("setting", ["max_bytes", "max_age"])
def test_retention_makes_room_without_being_asked(
    disk: SmallDisk, reserve: int, start_broker: StartBroker, peers: Peers, setting: str
) -> None:
    """C24, C45: on the broker's own timer, and writing resumes."""
    broker = start_broker(
        directory=disk.path / "data", disk_free_min=reserve, check_interval=2.0, worker_timeout=60.0
    )
    place = Place(disk, broker, peers, reserve)
    limits = {"max_bytes": 3 * MIB} if setting == "max_bytes" else {"max_age": 1.0, "size_limit": MIB}
    place.fast.call(CreateTopic(limits), "kept")
    place.publish("other", b"first")

    def is_full() -> bool:
        disk.fill(leave=reserve + 8 * MIB)
        refusals = burst(place.fast, "kept", [bytes(200_000)] * 60)
        disk.fill()  # not even the header block of another segment finds room
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
    assert place.values("kept")[-1] == b"newest"
    place.publish("other", b"x" * 10_000)
    assert place.values("other") == place.stored["other"]
    place.assert_whole()


def burst(fast: FastPeer, topic: str, values: Sequence[bytes]) -> set[str]:
    """Publish values all at once; returns the codes of the refusals, empty for what was stored."""
    sent = [fast.send_publish(topic, [value]) for value in values]
    return {code_of(answer) for answer in fast.answers_to(sent)}


# -- once there is room -------------------------------------------------------------------------------------


def test_writing_resumes_when_another_program_makes_room(place: Place) -> None:
    """C24: in the same process, for every topic, as often as it happens."""
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
    place.assert_kept()
    place.assert_whole()


def test_a_producer_at_work_goes_on_and_loses_and_doubles_nothing(place: Place) -> None:
    """C24, C31: it waits in front of the full disk."""
    place.disk.fill(leave=place.reserve + 2 * MIB)
    sent = [b"%06d" % number + bytes(1_000) for number in range(4_000)]
    with quoth.connect(place.broker.url) as client:
        producer = client.producer("made", batch=100, timeout=100.0)
        producer.send(sent[0])
        producer.flush()
        sending = threading.Thread(target=lambda: send_all(producer, sent[1:]))
        sending.start()

        def is_held_up() -> bool:
            refusals = [one.refusal for one in list(producer._inflight._in_flight)]
            return any(refusal and refusal.code == "disk_low" for refusal in refusals)

        eventually(is_held_up, "the disk is full")
        assert 0 < producer.acknowledged < len(sent)
        place.disk.make_room()
        sending.join()
        producer.close()
        assert producer.acknowledged == len(sent)
    assert place.values("made") == sent
    place.assert_whole()


def send_all(producer: Producer, values: Sequence[bytes]) -> None:
    """Hand values to a producer, which may make this wait."""
    for value in values:
        producer.send(value)


# -- starting and ending while it is full -------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_broker_comes_up_on_a_full_disk(place: Place, number: int) -> None:
    """C24: what was acknowledged is there, writing is refused and resumes, before and after the next end."""
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
    place.assert_kept()
    place.assert_whole()


def test_a_batch_that_was_torn_when_the_disk_was_full_waits_for_room(place: Place) -> None:
    """C24: setting it aside takes room; until there is some, what is whole is read and writing is refused."""
    place.fill()
    place.broker.kill()
    place.fast.close()
    (newest,) = sorted(place.broker.topics_directory.glob("other~*/*.seg"))[-1:]
    with newest.open("r+b") as file:
        file.truncate(size_of(newest) - 8)
    torn = place.stored["other"].pop()
    place.disk.fill()
    place.restart()
    place.assert_kept()
    with refused("disk_low"):
        place.fast.publish("other", [torn])
    place.make_room()
    place.publish("other", b"after")
    place.assert_kept()


# -- at every moment ----------------------------------------------------------------------------------------


def test_a_segment_is_sealed_with_whatever_room_there_is(
    disk: SmallDisk, start_broker: StartBroker, peers: Peers
) -> None:
    """C24: with room for the next header block, and none for all of the footer, or for the index."""
    place = Place(disk, start_broker(directory=disk.path / "data", disk_free_min=0), peers, 0)
    for blocks in range(6):
        for size in (10, 3_896):  # the second one ends half a footer before a block does
            topic = f"t{blocks}-{size}"
            place.fast.call(CreateTopic(), topic)
            place.publish(topic, bytes(size))
            disk.fill(leave=blocks * 4_096)
            assert code_of(place.fast.request(RollTopic(), topic)) in ("", "disk_low")
            place.publish_until_refused(topic, 3_000)
            place.assert_kept()
            place.assert_whole()
            disk.make_room()
            place.publish(topic, b"after")
    place.again(signal.SIGKILL)
    place.assert_kept()
    place.assert_whole()


ENDS = (None, None, signal.SIGTERM, signal.SIGKILL)


@pytest.mark.timeout(times(120, 600))
def test_the_disk_may_become_full_at_any_moment(
    disk: SmallDisk, start_broker: StartBroker, peers: Peers, rng: random.Random
) -> None:
    """C24: within a header, a body, a footer, an index, a header block, and where nothing was sent."""
    broker = start_broker(
        directory=disk.path / "data",
        disk_free_min=0,
        check_interval=0.05,
        worker_timeout=rng.choice((0.01, 60.0)),
    )
    place = Place(disk, broker, peers, 0)
    for row in range(times(5, 150)):
        topic = f"t{row}"
        limits = {"size_limit": rng.choice((500, 3_000, 20_000, MIB))}
        place.fast.call(CreateTopic(limits), topic)
        disk.fill(leave=rng.randrange(8_000, 200_000))
        unknown = go_beyond_the_end(place, topic, rng)
        found = place.values(topic)
        place.stored[topic] += [value for value in found if value in unknown]
        disk.make_room()
        place.publish(topic, b"after %d" % row)
        place.assert_kept()
        place.assert_whole()
        place.fast.call(DeleteTopic(), topic)
        del place.stored[topic]


def go_beyond_the_end(place: Place, topic: str, rng: random.Random) -> set[bytes]:
    """Publish until nothing fits, and end the broker or not; returns values of which nobody was told."""
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
    end = rng.choice(ENDS)
    if end is None:
        place.assert_whole()
        return set()
    unknown = some_values(rng, 20, size_max)
    for value in unknown:
        place.fast.send_publish(topic, [value])
    place.again(end)
    return set(unknown)


def some_values(rng: random.Random, count: int, size_max: int) -> list[bytes]:
    """Values that differ."""
    return [rng.randbytes(12) + bytes(rng.randint(0, size_max)) for _ in range(count)]
