"""The dispatcher in memory: every operation in every state of a topic is answered exactly once."""

from __future__ import annotations

import errno
import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import NAME, pending
from kit.broker.operations import OPERATIONS as OF_A_TOPIC
from kit.disk.doubles import Kind
from quothd.frontend.scheduler import OPEN_S
from quothd.frontend.topic_states import State
from quothd.requests.events import Closed, Deleted, Event, Released
from quothd.requests.pending_request import PendingRequest
from quothd.threads.executor import QUICK_ITEMS_MAX
from quothwire.protocol.messages import CreateTopic, Fetch, Publish

OPERATIONS: dict[str, Callable[[], PendingRequest]] = {
    **OF_A_TOPIC,
    "publish of no batch": lambda: pending(Publish("written"), b"no batch"),
    "create": lambda: pending(CreateTopic()),
}
CREATING = ("publish", "publish synced", "stage", "create", "open group", "open cursor")


def absent(_broker: MemoryBroker) -> None:
    """The topic does not exist."""


def opened(broker: MemoryBroker) -> None:
    """The topic is open, with two records."""
    broker.ask(OPERATIONS["publish"]())
    broker.settle()


def hibernating(broker: MemoryBroker) -> None:
    """The topic has been open once, and hibernates."""
    opened(broker)
    broker.pass_time(1_000.0)
    broker.settle()
    assert broker.dispatcher.registry.entries[NAME].executor is None


def unopened(broker: MemoryBroker) -> None:
    """The topic lies in the data directory, and has not been opened since the start."""
    opened(broker)
    broker.dispatcher.end(broker.clock.monotonic() + 1.0)
    broker.__init__(broker.config.dir)  # type: ignore[misc]


def opening(broker: MemoryBroker) -> None:
    """The thread of the topic opens its log."""
    hibernating(broker)
    broker.ask(OPERATIONS["publish"]())


def queued(broker: MemoryBroker) -> None:
    """The topic waits, since no more topics may be active."""
    hibernating(broker)
    broker.dispatcher.scheduler.workers_max = 0
    broker.ask(OPERATIONS["publish"]())


def closing(broker: MemoryBroker) -> None:
    """The thread of the topic closes its log."""
    opened(broker)
    entry = broker.dispatcher.registry.entries[NAME]
    broker.dispatcher.scheduler.hibernate(entry)


def with_its_thread(broker: MemoryBroker) -> None:
    """The topic's thread has the token, and requests to handle."""
    opened(broker)
    broker.ask(OPERATIONS["roll"]())
    broker.front_end()


def deleting(broker: MemoryBroker) -> None:
    """The topic is being deleted, behind a publish."""
    with_its_thread(broker)
    broker.ask(OPERATIONS["delete"]())


def stopping(broker: MemoryBroker) -> None:
    """The broker ends."""
    opened(broker)
    broker.dispatcher.drain()


STATES = [
    absent, opened, hibernating, unopened, opening, queued, closing, with_its_thread, deleting, stopping
]  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_every_request_is_answered_once_in_every_state_of_its_topic(
    tmp_path: Path, state: Callable[[MemoryBroker], None]
) -> None:
    for name in OPERATIONS:
        check_answer(MemoryBroker(tmp_path / name), state, name)


def check_answer(broker: MemoryBroker, state: Callable[[MemoryBroker], None], name: str) -> None:
    """Bring the topic into a state, ask for an operation, and check that all requests have one answer."""
    state(broker)
    before = [*broker.answers]
    request = broker.ask(OPERATIONS[name]())
    broker.dispatcher.scheduler.workers_max = 4
    for _ in ("the topic is opened", "the time of a fetch that waits is over"):
        broker.settle()
        broker.pass_time(2.0)
    broker.settle()
    assert {len(broker.answers[one]) for one in (*before, request)} == {1}, name
    expected = {absent: "unknown_topic", stopping: "stopping"}.get(state)
    if state is absent and name in (*CREATING, "publish of no batch"):
        expected = None
    if expected:
        assert broker.code(request) == expected
    if name == "create" and state not in (absent, deleting, stopping):
        assert broker.code(request) == "topic_exists"
    assert (broker.dispatcher.in_work.requests, broker.dispatcher.in_work.bytes) == (0, 0)
    entry = broker.dispatcher.registry.entries.get(NAME)
    assert entry is None or (entry.outstanding, entry.in_work, entry.queued) == (0, 0, [])
    assert not broker.dispatcher.pending_fetches


def test_a_topic_is_created_by_requests_that_store_and_by_no_others(tmp_path: Path) -> None:
    for name in OPERATIONS:
        broker = MemoryBroker(tmp_path / name)
        request = broker.ask(OPERATIONS[name]())
        broker.settle()
        assert (NAME in broker.dispatcher.registry.entries) == (name in CREATING)
        assert len([*(tmp_path / name / "topics").iterdir()]) == (name in CREATING)
        assert name not in CREATING or broker.code(request) == ""


def test_a_hibernating_topic_is_opened_by_requests_that_need_its_log(tmp_path: Path) -> None:
    for name in OPERATIONS:
        broker = MemoryBroker(tmp_path / name)
        hibernating(broker)
        broker.ask(OPERATIONS[name]())
        opens = broker.dispatcher.registry.entries[NAME].state is State.OPENING
        assert opens == (name not in ("describe", "create", "fetch and wait"))


def test_requests_that_wait_for_a_topic_are_handled_in_their_order(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    hibernating(broker)
    first = broker.ask(OPERATIONS["publish"]())
    second = broker.ask(pending(Fetch(after=broker.newest[NAME], wait_ms=0)))
    assert not broker.answers[first], "the topic is being opened"
    newest = broker.newest[NAME]
    broker.settle()
    assert [broker.code(one) for one in (first, second)] == ["", ""]
    assert broker.newest[NAME] > newest


def fetch(after: int) -> PendingRequest:
    """A fetch that may wait for a minute."""
    return pending(Fetch(after=after, wait_ms=60_000))


def test_a_pending_fetch_is_answered_only_by_a_newer_record(tmp_path: Path) -> None:
    """Not by the creation of its topic, a roll, a trim, or a record below its cursor. A deletion ends it.

    A reader that expects a record does not wait for its topic to be created.
    """
    broker = MemoryBroker(tmp_path)

    def ask(request: PendingRequest) -> PendingRequest:
        broker.ask(request)
        broker.settle()
        return request

    assert broker.code(ask(pending(Fetch(after=5, ordinal=3, wait_ms=60_000)))) == "unknown_topic"
    early = ask(fetch(0))
    ask(OPERATIONS["create"]())
    later = ask(fetch(0))
    assert not any(broker.answers[one] for one in (early, later))
    ask(OPERATIONS["publish"]())
    assert [broker.code(one) for one in (early, later)] == ["", ""]
    at_end, beyond = ask(fetch(broker.newest[NAME])), ask(fetch(2**56 - 1))
    for name in ("roll", "trim"):
        assert broker.code(ask(OPERATIONS[name]())) == ""
    trimmed = ask(fetch(0))
    assert not any(broker.answers[one] for one in (at_end, beyond, trimmed))
    ask(OPERATIONS["publish"]())
    assert [broker.code(one) for one in (at_end, trimmed)] == ["", ""]
    assert not broker.answers[beyond]
    broker.pass_time(61.0)
    assert broker.code(beyond) == ""
    last = ask(fetch(broker.newest[NAME]))
    ask(OPERATIONS["delete"]())
    assert broker.code(last) == "unknown_topic"


def test_a_pending_fetch_does_not_prevent_hibernation(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    opened(broker)
    asked = broker.ask(fetch(broker.newest[NAME]))
    for _ in range(3):
        broker.pass_time(2.0)
        broker.settle()
    assert broker.dispatcher.registry.entries[NAME].executor is None
    assert not broker.answers[asked]


def test_pending_fetches_are_bounded_and_a_publish_answers_more_than_a_topic_takes(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path, topic_requests_max=10, waits_max=100)
    hibernating(broker)
    asked = [broker.ask(fetch(broker.newest[NAME])) for _ in range(100)]
    for topic in (NAME, "unknown"):
        refused = fetch(broker.newest[NAME])
        refused.topic = topic
        assert broker.code(broker.ask(refused)) == "busy"
    broker.ask(OPERATIONS["publish"]())
    broker.settle()
    assert {broker.code(one) for one in asked} == {""}


def test_a_topic_that_is_never_idle_is_closed_for_a_waiting_one(tmp_path: Path) -> None:
    """Its acknowledgements wait for the disk, and more requests come than it answers."""
    broker = MemoryBroker(tmp_path, workers_max=1)
    opened(broker)
    asked = [broker.ask(OPERATIONS["publish synced"]()) for _ in range(5)]
    other = OPERATIONS["publish"]()
    other.topic = "other"
    asked.append(broker.ask(other))
    while not broker.answers[other]:
        asked += [broker.ask(OPERATIONS["publish synced"]()) for _ in range(2)]
        broker.pass_time(OPEN_S)
        broker.front_end()
        any(thread.step() for thread in broker.threads) or broker.work.step()
        assert len(asked) < 100
    broker.settle()
    assert {broker.code(one) for one in asked} == {""}


@pytest.mark.parametrize("hibernates", [False, True])
def test_a_failed_fsync_in_the_background_refuses_the_next_publish(tmp_path: Path, hibernates: bool) -> None:
    """Reads go on."""
    broker = MemoryBroker(tmp_path)
    opened(broker)
    broker.disk.fail("sync")
    if hibernates:
        broker.dispatcher.scheduler.hibernate(broker.dispatcher.registry.entries[NAME])
    else:
        broker.pass_time(0.1)
    broker.settle()
    asked = [broker.ask(OPERATIONS[name]()) for name in ("publish", "fetch")]
    broker.settle()
    assert [broker.code(one) for one in asked] == ["storage_failed", ""]


def test_an_event_of_an_executor_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    opened(broker)
    (old,) = broker.dispatcher.scheduler.executors
    entry = broker.dispatcher.registry.entries[NAME]
    broker.pass_time(1_000.0)
    broker.settle()
    broker.ask(OPERATIONS["publish"]())
    broker.dispatcher.take(old, [Released(7)], broker.clock.monotonic())
    assert entry.executor is not None
    assert entry.executor is not old
    broker.settle()
    assert entry.state is State.OPEN


def test_a_request_that_comes_while_its_topic_breaks_down_is_answered(tmp_path: Path) -> None:
    """The front end gives it to a thread that has ended already."""
    broker = MemoryBroker(tmp_path)
    opened(broker)
    broker.disk.fail("read", problem=RuntimeError("a defect"))
    breaks = broker.ask(OPERATIONS["roll"]())
    broker.front_end()
    (thread,) = broker.threads
    while thread.step():
        pass
    assert not thread.is_alive
    late = broker.ask(OPERATIONS["publish"]())
    broker.dispatcher.run(math.inf)
    assert [item for items in thread.lists for item in items] == [late]
    broker.settle()
    assert [broker.code(one) for one in (breaks, late)] == ["internal", "internal"]
    after = broker.ask(OPERATIONS["publish"]())
    broker.settle()
    assert broker.code(after) == ""


def test_retention_that_fails_is_retried_periodically(tmp_path: Path) -> None:
    """Without a request for the topic, also where it cannot even be opened."""
    faults: list[tuple[Kind, int, str]] = [
        ("open", errno.EMFILE, "max_age"),
        ("create", errno.ENOSPC, "age_limit"),
    ]
    for kind, problem, setting in faults:
        broker = MemoryBroker(tmp_path / kind)
        broker.ask(pending(CreateTopic({setting: 600.0})))
        opened(broker)
        entry = broker.dispatcher.registry.entries[NAME]

        def pass_seconds(count: int, broker: MemoryBroker = broker) -> None:
            for _ in range(count):
                broker.pass_time(1.0)
                broker.settle()

        pass_seconds(500)
        assert entry.state is State.HIBERNATING
        broker.disk.fail(kind, problem=problem, lasting=True)
        before = broker.disk.count(kind)
        pass_seconds(300)
        assert 0 < broker.disk.count(kind) - before < 40, kind
        assert entry.info is not None
        assert (entry.info.first_ordinal, entry.info.counters["rolls"]) == (0, kind == "open")
        broker.disk.heal()
        pass_seconds(20)
        assert (entry.info.first_ordinal, entry.info.counters["rolls"]) == (2 * (kind == "open"), 1)


def test_counters_survive_hibernation(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    for number in (1, 2):
        hibernating(broker)
        broker.ask(OPERATIONS["roll"]())
        broker.settle()
        hibernating(broker)
        info = broker.dispatcher.registry.entries[NAME].info
        assert info is not None
        assert info.counters["rolls"] == number


@pytest.mark.parametrize(("last", "name"), [(Closed, "hibernating"), (Deleted, "delete")])
def test_the_last_event_of_a_thread_ends_its_topic(tmp_path: Path, last: type[Event], name: str) -> None:
    """No one takes a later one; so a deletion brings its answer with it."""
    broker = MemoryBroker(tmp_path)
    opened(broker)
    (thread,) = broker.threads
    if name == "delete":
        broker.ask(OPERATIONS[name]())
    else:
        broker.dispatcher.scheduler.hibernate(broker.dispatcher.registry.entries[NAME])
    broker.dispatcher.run(math.inf)
    while thread.step():
        pass
    posted = [event for _, events in broker.outbox.take(math.inf, broker.clock.monotonic) for event in events]
    assert type(posted[-1]) is last
    assert not thread.is_alive


@pytest.mark.parametrize("end", ["hibernates", "is deleted"])
def test_the_log_of_a_topic_that_ends_is_freed_at_once(tmp_path: Path, end: str) -> None:
    """Not by a later collection of cyclic garbage: that would keep the memory of many topics."""
    broker = MemoryBroker(tmp_path)
    opened(broker)
    executor = broker.dispatcher.registry.entries[NAME].executor
    assert executor is not None
    parts = weakref.ref(executor.thread.topic), weakref.ref(executor.thread.topic.reads)
    del executor
    gc.collect()
    gc.disable()
    try:
        if end == "hibernates":
            broker.pass_time(1_000.0)
        else:
            broker.ask(OPERATIONS["delete"]())
        broker.settle()
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


def test_a_burst_that_the_front_end_handles_in_parts_is_answered_completely(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    opened(broker)
    burst = [broker.ask(OPERATIONS["publish"]()) for _ in range(QUICK_ITEMS_MAX + 1)]
    burst += [broker.ask(OPERATIONS[name]()) for name in ("roll", "publish")]
    broker.settle()
    assert {broker.code(one) for one in burst} == {""}
