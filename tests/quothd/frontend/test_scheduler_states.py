"""The scheduler in memory: which topics are active while more are wanted than may be."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

from quothd.frontend.registry import RegistryEntry, State, Transition
from quothd.frontend.scheduler import OPEN_S, Scheduler
from quothd.requests.events import Close
from quothd.topics.metadata import TopicMetadata
from quothlog.datadir.topic_file import TopicFile
from quothwire.settings import TopicSettings


class Thread:
    """The thread of a topic, which has ended."""

    is_alive = False


class Executor:
    """Keeps what it is sent."""

    def __init__(self, metadata: TopicMetadata) -> None:
        self.name = metadata.topic.name
        self.sent: list[Any] = []
        self.thread = Thread()

    def send(self, item: Any) -> None:
        self.sent.append(item)


class Topics:
    """Topics a, b, c, ... of a scheduler."""

    def __init__(self, workers_max: int, count: int = 5) -> None:
        self.scheduler = Scheduler(workers_max, cast(Any, Executor))
        self.entries = [
            RegistryEntry(TopicMetadata(Path(name), TopicFile(name, 1, TopicSettings())), is_new=False)
            for name in "abcdefghijklmnop"[:count]
        ]

    @property
    def active(self) -> str:
        """The names of the active topics, in the order in which they became so."""
        return "".join(cast(Any, one).name for one in self.scheduler.executors)

    def open(self, *entries: RegistryEntry, now: float = 0.0) -> None:
        for entry in entries:
            self.scheduler.need(entry, now)
            if entry.state is State.OPENING:
                entry.step(Transition.OPENED)

    def close(self, entry: RegistryEntry, now: float = 0.0) -> None:
        assert cast(Any, entry.executor).sent[-1] == Close()
        self.scheduler.released(entry, Transition.CLOSED, now)


def test_a_waiting_topic_replaces_the_least_recently_used_idle_topic() -> None:
    topics = Topics(2)
    a, b, c, *_ = topics.entries
    topics.open(a, b)
    a.used, b.used = 2.0, 1.0
    topics.open(c)
    assert (a.state, b.state) == (State.OPEN, State.CLOSING)
    topics.close(b)
    assert topics.active == "ac"


def test_a_busy_topic_is_closed_after_a_while_and_gets_no_requests_until_then() -> None:
    topics = Topics(1)
    a, b, *_ = topics.entries
    topics.open(a)
    a.outstanding = a.in_work = 1
    topics.open(b)
    topics.scheduler.tick(OPEN_S / 2)
    assert not a.makes_way
    topics.scheduler.tick(OPEN_S)
    assert (a.makes_way, a.state) == (True, State.OPEN), "it answers what it has"
    a.outstanding = a.in_work = 0
    topics.scheduler.hibernate(a)
    topics.close(a)
    assert topics.active == "b"
    assert not a.makes_way


def test_a_topic_with_requests_during_its_closing_is_opened_again() -> None:
    topics = Topics(1)
    a, *_ = topics.entries
    topics.open(a)
    topics.scheduler.hibernate(a)
    a.queued.append(cast(Any, object()))
    topics.close(a)
    assert (topics.active, a.state) == ("a", State.OPENING)


def test_topics_that_were_not_opened_since_the_start_are_opened_one_after_the_other() -> None:
    topics = Topics(3)
    topics.scheduler.open_all(topics.entries)
    topics.scheduler.tick(0.0)
    assert (topics.active, len(topics.scheduler.unopened)) == ("a", 4)
    topics.scheduler.tick(0.0)
    assert topics.active == "a", "it is still being opened"
    topics.entries[0].step(Transition.OPENED)
    topics.scheduler.tick(0.0)
    assert topics.active == "ab"


def test_a_stopping_broker_opens_topics_for_requests_only_and_closes_idle_ones() -> None:
    topics = Topics(3)
    a, b, *_ = topics.entries
    topics.open(a, b)
    b.outstanding = 1
    topics.scheduler.open_all(topics.entries[2:])
    topics.scheduler.drain()
    topics.scheduler.tick(0.0)
    assert topics.active == "ab"
    assert not topics.scheduler.drained()
    assert (a.state, b.state) == (State.CLOSING, State.OPEN)
    topics.close(a)
    b.outstanding = 0
    assert not topics.scheduler.drained()
    topics.close(b)
    assert topics.scheduler.drained()


def test_random_requests_never_exceed_the_active_topics_and_are_all_served(rng: Random) -> None:
    topics = Topics(3, count=12)
    served: set[str] = set()
    now = 0.0
    for _ in range(2_000):
        now += rng.random() * OPEN_S / 2
        entry = rng.choice(topics.entries)
        match entry.state:
            case State.HIBERNATING | State.QUEUED:
                topics.scheduler.need(entry, now)
            case State.OPENING:
                entry.step(Transition.OPENED)
                served.add(entry.name)
                entry.outstanding = entry.in_work = rng.randrange(2)
            case State.OPEN if entry.outstanding:
                entry.outstanding = entry.in_work = 0
                if entry.makes_way:
                    topics.scheduler.hibernate(entry)
            case State.CLOSING:
                topics.close(entry, now)
        topics.scheduler.tick(now)
        assert len(topics.active) <= 3
        assert len(topics.active) == len(topics.scheduler.active)
        active = [one for one in topics.entries if one.executor is not None]
        assert {one.state for one in active} <= {State.OPENING, State.OPEN, State.CLOSING}
    assert len(served) == len(topics.entries)
