"""The small parts of the broker by themselves: the table of a topic's life, waits, folders, files, bells."""

from __future__ import annotations

import errno
import random
import select
import threading
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest
import zmq

from kit.deadlines import DEADLINE_S
from kit.peers import refused
from quothd import catalog, topicfile
from quothd.caller import Caller
from quothd.events import Answered, Event
from quothd.job import Job
from quothd.lifecycle import ACTIVE, TABLE, Happening, State, follow
from quothd.outbox import TAKE_MAX, Outbox
from quothd.replies import KEPT_BYTES_MAX, PATIENCE_S, REPLY_BYTES, Replies
from quothd.topicfile import TopicFile
from quothd.waits import Waits
from quothd.wakeup import Wakeup
from quothwire.message import Operation
from quothwire.settings import TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX

# -- the life of a topic --------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "happening"), list(product(State, Happening)))
def test_whatever_is_not_in_the_table_cannot_happen(state: State, happening: Happening) -> None:
    """Every state and every happening: a row of the table, or a defect that says so."""
    if (state, happening) in TABLE:
        assert follow(state, happening) is TABLE[state, happening]
    else:
        with pytest.raises(AssertionError, match=happening.name):
            follow(state, happening)


def test_every_life_can_end_and_every_state_is_reached() -> None:
    """From asleep every other state can be reached, and from each of them sleep, or the end."""
    assert reached_from(State.ASLEEP) == set(State)
    for state in State:
        assert State.ASLEEP in reached_from(state) or state is State.GONE
    assert not any(state is State.GONE for state, _ in TABLE)


def test_a_worker_that_fails_is_always_got_rid_of() -> None:
    """Wherever there is a worker it may fail, and then there is none."""
    for state in ACTIVE:
        assert follow(state, Happening.FAILED) not in ACTIVE


def test_a_topic_that_is_needed_is_never_lost() -> None:
    """In every state but the last, and it leads to a worker or stays on the way to one."""
    for state in set(State) - {State.GONE}:
        assert follow(state, Happening.NEEDED) in ACTIVE | {State.QUEUED}


def reached_from(start: State) -> set[State]:
    """The states that some happenings lead to, this one included."""
    reached = {start}
    while more := {to for (state, _), to in TABLE.items() if state in reached} - reached:
        reached |= more
    return reached


# -- waits ----------------------------------------------------------------------------------------------


def job(topic: str, after: int, deadline: float) -> Job:
    """A fetch that waits."""
    return Job(cast(Caller, None), Operation.FETCH, topic, 0, after=after, deadline=deadline)


def test_waits_are_a_list(rng: random.Random) -> None:
    """Held against the plainest model: every job is told once, for the right reason, the oldest first."""
    waits, model = Waits(), list[Job]()
    now = 0.0
    for _ in range(5_000):
        topic = rng.choice("abc")
        match rng.randrange(6):
            case 0 | 1 | 2:
                model.append(job(topic, rng.randrange(20), now + rng.choice((0.0, 5.0, 50.0, 5_000.0))))
                waits.park(model[-1])
                continue
            case 3:
                newest, most = rng.randrange(20), rng.choice((0, 1, 5, 1_000))
                expected = [one for one in model if one.topic == topic and one.after < newest][:most]
                found = waits.take_ready(topic, newest, most)
                assert found == expected
            case 4:
                now += rng.random() * 10
                expected = [one for one in model if one.deadline <= now]
                found = waits.take_expired(now)
                assert set(found) == set(expected)
            case _:
                if rng.random() < 0.9:
                    continue
                expected = [one for one in model if one.topic == topic]
                found = waits.take_topic(topic)
                assert found == expected
        model = [one for one in model if one not in found]
        assert len(waits) == len(model)
        deadline = waits.next_deadline()
        if model:
            assert deadline is not None
            assert deadline <= min(one.deadline for one in model)
    assert set(waits.take_all()) == set(model)
    assert len(waits) == 0


def test_waits_that_ended_are_forgotten() -> None:
    """A tailing reader parks again and again, with deadlines far away: that must not gather."""
    waits = Waits()
    for i in range(100_000):
        waits.park(job("t", i, 1e9))
        assert len(waits.take_ready("t", i + 1, 10)) == 1
    assert len(waits._deadlines) < 3_000
    assert waits._by_topic == {}


# -- folders and files ----------------------------------------------------------------------------------


NAMES = [
    "t",
    "a b",
    "größe",
    "😀" * 50,
    "x" * 200,
    "CON",
    ".hidden",
    "...",
    "%2E",
    "a~b",
    "~",
    "$x;`y`",
    "\u200b",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_slug_is_a_harmless_file_name(name: str) -> None:
    """C8: readable, and reversible unless it had to be cut."""
    slug = catalog.slug(name)
    assert slug
    assert slug.isascii()
    assert slug.isprintable()
    assert "/" not in slug
    assert not slug.startswith(".")
    assert len(slug) + 17 <= 255
    if len(slug) < 200:
        assert unquote(slug) == name


def test_slugs_of_different_names_differ() -> None:
    """C8: as long as they are short enough; the log's id tells the others apart."""
    slugs = [catalog.slug(name) for name in NAMES if len(catalog.slug(name)) < 200]
    assert len(set(slugs)) == len(slugs)


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_is_found_as_it_was_made(tmp_path: Path, name: str) -> None:
    """C8, C37: made, saved, retired, removed."""
    topic = TopicFile(name, 2**63 - 7, TopicSettings(max_age=5.0))
    (tmp_path / "topics").mkdir()
    path = catalog.make(tmp_path, topic)
    assert catalog.scan(tmp_path).folders == [catalog.Folder(path, topic)]
    changed = replace(topic, settings=TopicSettings(durability="synced"))
    catalog.save(path, changed)
    assert catalog.scan(tmp_path).folders == [catalog.Folder(path, changed)]
    gone = catalog.retire(path)
    assert gone.name.startswith(".gone~")
    found = catalog.scan(tmp_path)
    assert (found.folders, found.strays) == ([], [])
    assert not gone.exists()


def test_names_of_copies_can_be_addressed(tmp_path: Path) -> None:
    """C34: whatever the original is called."""
    (tmp_path / "topics").mkdir()
    for name in NAMES:
        for log_id in (1, 2, 3):
            catalog.make(tmp_path, TopicFile(name, log_id, TopicSettings()))
    found = [folder.topic.name for folder in catalog.scan(tmp_path).folders]
    assert len(found) == len(set(found)) == 3 * len(NAMES)
    assert max(len(name.encode()) for name in found) <= TOPIC_BYTES_MAX


FILE = topicfile.encode(TopicFile("größe", 2**64 - 1, TopicSettings(max_age=1.5, max_bytes=7)))


def test_a_settings_file_is_read_as_it_was_written() -> None:
    """C47."""
    for name in NAMES:
        for settings in (TopicSettings(), TopicSettings("synced", 1e10, 2**56, 1, 2**40, 0.001)):
            topic = TopicFile(name, 12345, settings)
            assert topicfile.decode(topicfile.encode(topic)) == topic


def test_a_damaged_settings_file_is_refused_wherever_the_damage_is() -> None:
    """C27: each byte changed, cut off there, or something behind the end."""
    for i in range(len(FILE)):
        for wrong in (FILE[:i], FILE[:i] + bytes([FILE[i] ^ 1]) + FILE[i + 1 :]):
            with refused("damaged"):
                topicfile.decode(wrong)
    for tail in (b"\n", b"x", FILE):
        with refused("damaged"):
            topicfile.decode(FILE + tail)


def test_settings_of_the_largest_topic_fit(tmp_path: Path) -> None:
    """C47: the file is read up to a limit."""
    longest = TopicFile("\x7e" * 200, 2**64 - 1, TopicSettings("synced", 1e10, 2**56, 2**40, 2**40, 1e10))
    assert len(topicfile.encode(longest)) < topicfile.BYTES_MAX


# -- wake-ups -------------------------------------------------------------------------------------------


def event(number: int) -> Event:
    """Something that can be told apart."""
    return Answered(cast(Any, None), cast(Any, number), [])


def is_ringing(fd: int) -> bool:
    """Would a poller come back?"""
    return bool(select.select([fd], [], [], 0)[0])


def test_a_wake_up_is_heard_until_it_is_hushed() -> None:
    """However often it was rung."""
    wakeup = Wakeup()
    assert not is_ringing(wakeup.fd)
    for _ in range(100_000):
        wakeup.ring()
    assert is_ringing(wakeup.fd)
    wakeup.hush()
    assert not is_ringing(wakeup.fd)
    wakeup.hush()
    wakeup.close()


class Interrupted(Wakeup):
    """A wake-up in the middle of which another thread gets its turn."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox
        self.before: list[Event] = []
        self.after: list[Event] = []

    def hush(self) -> None:
        """See `Wakeup.hush`."""
        for one in self.before:
            self._outbox.post(one)
        self.before = []
        super().hush()
        for one in self.after:
            self._outbox.post(one)
        self.after = []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_post_in_the_middle_of_taking_is_neither_lost_nor_unheard(moment: str) -> None:
    """C42: whatever is not taken now rings; and what comes later does as well."""
    outbox = Outbox()
    wakeup = outbox._wakeup = Interrupted(outbox)
    outbox.post(event(1))
    setattr(wakeup, moment, [event(2)])
    taken = list(outbox.take())
    if len(taken) < 2:
        assert is_ringing(wakeup.fd)
        taken += list(outbox.take())
    assert taken == [event(1), event(2)]
    outbox.post(event(3))
    assert is_ringing(wakeup.fd)
    assert list(outbox.take()) == [event(3)]
    wakeup.close()


def test_a_flood_of_events_is_taken_in_parts() -> None:
    """So that sockets are looked at in between; the rest rings."""
    outbox = Outbox()
    for i in range(2 * TAKE_MAX + 5):
        outbox.post(event(i))
    found: list[Event] = []
    while is_ringing(outbox.fd):
        part = list(outbox.take())
        assert len(part) <= TAKE_MAX
        found += part
    assert found == [event(i) for i in range(2 * TAKE_MAX + 5)]
    outbox.close()


def test_many_threads_post_and_nothing_is_lost() -> None:
    """C42: the one who takes sleeps whenever it is silent."""
    outbox = Outbox()
    each = 5_000

    def post(number: int) -> None:
        for i in range(each):
            outbox.post(event(number * each + i))

    posters = [threading.Thread(target=post, args=(number,)) for number in range(4)]
    for one in posters:
        one.start()
    found: list[Event] = []
    while len(found) < 4 * each:
        assert select.select([outbox.fd], [], [], DEADLINE_S)[0], f"{len(found)} taken, then silence"
        found += outbox.take()
    for one in posters:
        one.join()
    numbers = [cast(int, one.job) for one in found if isinstance(one, Answered)]
    for number in range(4):
        own = [i for i in numbers if i // each == number]
        assert own == list(range(number * each, (number + 1) * each))
    outbox.close()


# -- replies --------------------------------------------------------------------------------------------


class Router:
    """A ROUTER that takes so many messages for each client."""

    def __init__(self) -> None:
        self.room: Counter[bytes] = Counter()
        self.sent: list[list[bytes]] = []
        self.gone: set[bytes] = set()

    def send_multipart(self, frames: list[bytes], flags: int, copy: bool) -> None:
        """See `zmq.Socket.send_multipart`."""
        assert flags == zmq.NOBLOCK
        if frames[0] in self.gone:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        if not self.room[frames[0]]:
            raise zmq.Again(errno.EAGAIN)
        self.room[frames[0]] -= 1
        self.sent.append(frames)


@pytest.fixture
def router() -> Router:
    """See `Router`."""
    return Router()


@pytest.fixture
def counters() -> Counter[str]:
    """What was counted."""
    return Counter()


@pytest.fixture
def replies(router: Router, counters: Counter[str]) -> Replies:
    """Replies through that router."""
    return Replies(cast(Any, router), counters)


def test_a_reply_goes_out_at_once_if_there_is_room(replies: Replies, router: Router) -> None:
    """C60."""
    router.room[b"a"] = 1
    replies.send([b"a", b"1"], 0.0)
    assert router.sent == [[b"a", b"1"]]
    assert replies.next_try() is None
    assert not replies


def test_replies_keep_their_order_whatever_the_room(
    replies: Replies, router: Router, rng: random.Random
) -> None:
    """C60: for each client, with room coming and going; nobody waits for anybody else."""
    now, clients = 0.0, [b"a", b"b", b"c"]
    expected: dict[bytes, list[bytes]] = {client: [] for client in clients}
    for number in range(2_000):
        client = rng.choice(clients)
        router.room[rng.choice(clients)] += rng.choice((0, 0, 1, 3))
        expected[client].append(b"%d" % number)
        replies.send([client, expected[client][-1]], now)
        now += rng.random() / 100
        replies.offer_again(now)
    for client in clients:
        router.room[client] = 10_000
    replies.offer_again(now + 1)
    assert not replies
    for client in clients:
        assert [frames[1] for frames in router.sent if frames[0] == client] == expected[client]


def test_a_client_that_takes_nothing_loses_its_replies(
    replies: Replies, router: Router, counters: Counter[str]
) -> None:
    """C60: after a while, and it begins anew when it takes again."""
    for _ in range(5):
        replies.send([b"a", b"x"], 0.0)
    replies.offer_again(PATIENCE_S - 0.1)
    assert replies
    replies.offer_again(PATIENCE_S + 0.1)
    assert not replies
    assert counters["replies_dropped"] == 5
    router.room[b"a"] = 1
    replies.send([b"a", b"y"], PATIENCE_S + 0.2)
    assert router.sent == [[b"a", b"y"]]


def test_what_is_kept_for_one_client_is_bounded(replies: Replies, counters: Counter[str]) -> None:
    """C60: in bytes, what a small reply takes in memory included."""
    for _ in range(KEPT_BYTES_MAX // 2**20 * 2):
        replies.send([b"a", bytes(2**20)], 0.0)
    assert counters["replies_dropped"] >= KEPT_BYTES_MAX // 2**20 - 1
    for _ in range(KEPT_BYTES_MAX // REPLY_BYTES + 10):
        replies.send([b"b", b""], 0.0)
    assert counters["replies_dropped"] >= KEPT_BYTES_MAX // 2**20 + 8


def test_replies_to_a_client_that_left_are_forgotten(
    replies: Replies, router: Router, counters: Counter[str]
) -> None:
    """C60."""
    for _ in range(3):
        replies.send([b"a", b"x"], 0.0)
    router.gone.add(b"a")
    replies.offer_again(1.0)
    assert not replies
    assert counters["replies_unroutable"] == 3


def test_trying_again_becomes_rarer(replies: Replies) -> None:
    """C60: a client that takes nothing costs little."""
    replies.send([b"a", b"x"], 0.0)
    now, tries = 0.0, 0
    while (again := replies.next_try()) is not None:
        assert again > now
        now = again
        replies.offer_again(now)
        tries += 1
    assert PATIENCE_S <= now < PATIENCE_S + 1
    assert tries < 1_000


def test_any_other_problem_is_raised(
    replies: Replies, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front end has to know that its socket is broken."""

    def broken(*_: object, **__: object) -> None:
        raise zmq.ZMQError(zmq.ENOTSOCK)

    monkeypatch.setattr(router, "send_multipart", broken)
    with pytest.raises(zmq.ZMQError):
        replies.send([b"a", b"x"], 0.0)
