"""The scheduler in memory: which topics are active while more are wanted than may be."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from quothd.frontend.registry import RegistryEntry
from quothd.frontend.scheduler import CREATIONS_MAX, NEW_MAX, OPEN_S, OPENING_MAX, Scheduler
from quothd.frontend.topic_states import State, Transition
from quothd.requests.events import Close
from quothd.topics.metadata import TopicMetadata
from quothlog.datadir.topic_file import TopicFile
from quothwire.errors import QuothError
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


def new_topics(count: int) -> list[RegistryEntry]:
    names = [f"new-{number}" for number in range(count)]
    return [
        RegistryEntry(TopicMetadata(None, TopicFile(name, 1, TopicSettings())), is_new=True) for name in names
    ]


def test_a_flood_of_new_topics_closes_no_topic_in_use_beyond_its_share() -> None:
    topics = Topics(8, count=7)
    topics.open(*topics.entries)
    new = new_topics(20)
    topics.open(*new)
    for turn in range(1, 50):
        topics.scheduler.tick(turn * OPEN_S / 4)
        for one in [*topics.scheduler.active.values()]:
            if one.state is State.OPENING:
                one.step(Transition.OPENED)
            elif one.state is State.CLOSING:
                topics.close(one, turn * OPEN_S / 4)
    assert {one.state for one in new} <= {State.OPEN, State.HIBERNATING}, "each was created"
    kept = [one for one in topics.entries if one.state is State.OPEN and not one.makes_way]
    assert len(kept) >= 6, "two of eight may be new, and one place was free"


def test_few_new_topics_open_at_once_and_none_closes_for_those_that_wait() -> None:
    topics = Topics(100)
    new = new_topics(NEW_MAX)
    for one in new:
        topics.scheduler.need(one, 0.0)
    while opening := [one for one in new if one.state is State.OPENING]:
        assert len(opening) <= OPENING_MAX
        opening[0].opened()
        topics.scheduler.tick(OPEN_S)
    assert {one.state for one in new} == {State.OPEN}


def test_a_topic_that_exists_is_opened_before_new_ones_that_have_waited_longer() -> None:
    topics = Topics(4, count=4)
    a, *others = topics.entries
    topics.open(*others)
    for one in others:
        one.outstanding = one.in_work = 1
    first, *new = new_topics(10)
    topics.open(first, *new)
    topics.scheduler.need(a, OPEN_S / 2)
    topics.scheduler.tick(OPEN_S / 2)
    assert first.state is State.CLOSING, "the new one closes, and none in use"
    topics.close(first, OPEN_S / 2)
    assert a.state is State.OPENING
    assert [one.state for one in others] == [State.OPEN] * 3
    assert {one.state for one in new} == {State.QUEUED}


def test_a_new_topic_is_opened_though_topics_that_exist_wait_without_end() -> None:
    topics = Topics(1)
    a, b, c, *_ = topics.entries
    (new,) = new_topics(1)
    topics.open(a, b, c, new)
    for _ in range(2):
        (active,) = topics.scheduler.active.values()
        if active.state is State.OPENING:
            active.step(Transition.OPENED)
            topics.scheduler.assign(0.0)
        topics.close(active)
    assert new.state is not State.QUEUED


def test_requests_that_create_are_refused_while_too_many_new_topics_wait() -> None:
    topics = Topics(1)
    first, *new = new_topics(CREATIONS_MAX + 1)
    topics.scheduler.need(first, 0.0)
    for one in new:
        topics.scheduler.check_creation()
        topics.scheduler.need(one, 0.0)
    with pytest.raises(QuothError, match="new topics wait") as refused:
        topics.scheduler.check_creation()
    assert (refused.value.code, refused.value.retryable) == ("busy", True)
