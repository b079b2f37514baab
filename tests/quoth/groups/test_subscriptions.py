"""Handlers of records in threads: who is called, what becomes of the records, how a run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import numbered
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import run_script
from quoth import Client, GroupMessage, NotFound, SubscriptionCounts

Counts = list[SubscriptionCounts]


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    client._timing.group_wait = 0.1
    client.publish(topic, numbered(20))
    return topic


@pytest.fixture
def begin(client: Client, pool: ThreadPoolExecutor) -> Iterator[Callable[[], Future[Counts]]]:
    """Begins a run in a thread, which ends with the test."""
    yield lambda: pool.submit(client.run)
    client.stop()


Begin = Callable[[], Future[Counts]]


def lag(client: Client, topic: str) -> int:
    return client.group(topic, "g").lag().records


def test_handlers_get_records_and_acknowledge_them_by_returning(
    client: Client, filled: str, begin: Begin
) -> None:
    found: list[bytes] = []

    @client.subscribe(filled, group="g")
    def handle(message: GroupMessage) -> None:
        found.append(message.value)

    run = begin()
    eventually(lambda: len(found) == 20, "all are handled")
    client.publish(filled, b"20")
    eventually(lambda: len(found) == 21, "those that come later, too")
    client.stop()
    assert run.result(DEADLINE_S) == [(filled, "g", 21, 0, 0)]
    assert sorted(found, key=int) == numbered(21)
    assert lag(client, filled) == 0


def test_an_error_gives_a_record_back_and_is_logged(
    client: Client, filled: str, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    done = set()

    @client.subscribe(filled, group="g", backoff=[0.0])
    def handle(message: GroupMessage) -> None:
        if message.value == b"7" and message.attempts == 1:
            raise ZeroDivisionError("of the test")
        done.add(message.value)

    run = begin()
    eventually(lambda: len(done) == 20, "it came again")
    client.stop()
    assert run.result(DEADLINE_S) == [(filled, "g", 20, 1, 0)]
    (record,) = caplog.records
    assert "a handler has failed" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_handler_may_settle_its_record_itself(client: Client, filled: str, begin: Begin) -> None:
    done = []

    @client.subscribe(filled, group="g", backoff=["1h"])
    def handle(message: GroupMessage) -> None:
        if message.value == b"3":
            message.nack()
        elif message.value == b"4":
            message.term("bad")
        done.append(message)

    run = begin()
    eventually(lambda: len(done) == 20, "all were there")
    client.stop()
    run.result(DEADLINE_S)
    info = client.group(filled, "g").info()
    eventually(lambda: client.group(filled, "g").info().dead == 1, "one is a dead letter")
    assert info.pending in (1, 2)


def test_as_many_handlers_run_at_once_as_were_asked_for(client: Client, filled: str, begin: Begin) -> None:
    inside, most, meeting = set(), [0], threading.Barrier(3)

    @client.subscribe(filled, group="g", concurrency=3)
    def handle(message: GroupMessage) -> None:
        inside.add(message.pointer)
        most.append(len(inside))
        if message.value in numbered(3):
            meeting.wait(DEADLINE_S)
        inside.remove(message.pointer)

    run = begin()
    eventually(lambda: lag(client, filled) == 0, "all are handled")
    client.stop()
    run.result(DEADLINE_S)
    assert max(most) == 3


def test_what_is_at_work_is_finished_and_the_rest_is_given_back(
    client: Client, filled: str, begin: Begin
) -> None:
    """Records that were fetched beside them are handed out at once, to another member."""
    working, going_on = threading.Event(), threading.Event()

    @client.subscribe(filled, group="g", concurrency=1)
    def handle(message: GroupMessage) -> None:
        if message.value == b"7":
            working.set()
            going_on.wait(DEADLINE_S)

    run = begin()
    assert working.wait(DEADLINE_S)
    client.stop()
    going_on.set()
    ((_, _, handled, failed, left),) = run.result(DEADLINE_S)
    assert (handled, failed) == (8, 0)
    with client.group(filled, "g") as group:
        found: list[bytes] = []
        while len(found) < 12:
            found += [message.value for message in group.fetch(timeout=DEADLINE_S)]
    assert sorted(found, key=int) == numbered(12, 8)
    assert 0 <= left <= 12


def test_several_subscriptions_run_together(client: Client, filled: str, topic: str, begin: Begin) -> None:
    done: list[str] = []
    for name in ("one", "other"):

        @client.subscribe(filled, group=name)
        def handle(_: GroupMessage, name: str = name) -> None:
            done.append(name)

    run = begin()
    eventually(lambda: len(done) == 40, "both have all records")
    client.stop()
    assert [counts[1:3] for counts in run.result(DEADLINE_S)] == [("one", 20), ("other", 20)]
    eventually(lambda: not client.status().waits, "no fetch of that run can get a record")
    run = begin()
    client.publish(filled, b"20")
    eventually(lambda: len(done) == 42, "another run goes on")
    client.stop()
    assert [counts.handled for counts in run.result(DEADLINE_S)] == [1, 1]


def test_an_error_of_a_group_ends_all_subscriptions(client: Client, filled: str, begin: Begin) -> None:
    done: list[GroupMessage] = []
    for name in ("g", "other"):
        client.subscribe(filled, group=name)(done.append)
    run = begin()
    eventually(lambda: len(done) == 40, "both are at work")
    client.group(filled, "g").delete()
    with pytest.raises(NotFound):
        run.result(DEADLINE_S)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("quoth-dispatch")]


def test_a_second_run_beside_the_first_is_refused(client: Client, filled: str, begin: Begin) -> None:
    """The counts and `stop` are those of one run."""
    done: list[GroupMessage] = []
    client.subscribe(filled, group="g")(done.append)
    run = begin()
    eventually(lambda: len(done) == 20, "all are handled")
    with refused("bad_request"):
        client.run()
    client.stop()
    assert run.result(DEADLINE_S) == [(filled, "g", 20, 0, 0)]
    client.stop()


@pytest.mark.parametrize("name", ["quoth-dispatch", "quoth-handler"])
def test_a_run_that_cannot_have_its_threads_leaves_none(
    pooled: Client, filled: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start, numbers, started = threading.Thread.start, count(1), list[threading.Thread]()

    def start_two(thread: threading.Thread) -> None:
        if thread.name == name and next(numbers) == 3:
            raise RuntimeError("can't start new thread")
        start(thread)
        if thread.name == name:
            started.append(thread)

    for group in ("one", "two", "three"):
        pooled.subscribe(filled, group=group, concurrency=1 if name == "quoth-dispatch" else 4)(
            lambda _: None
        )
    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="new thread"):
        pooled.run()
    assert len(started) >= 2
    for thread in started:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_wrong_subscriptions_are_refused(client: Client, topic: str) -> None:
    with refused("bad_request"):
        client.run()
    for concurrency in (0, 1.5, True, 1_001):
        with refused("bad_request"):
            client.subscribe(topic, group="g", concurrency=concurrency)  # type: ignore[arg-type]
    with refused("bad_setting"):
        client.subscribe(topic, group="g", leese=3)  # type: ignore[call-arg]
    with refused("bad_request"):
        client.subscribe(topic, group="g")("no function")  # type: ignore[type-var]


def test_handlers_of_which_a_call_executes_nothing_are_refused(
    client: Client, filled: str, begin: Callable[[], Future[Counts]]
) -> None:
    """Or records would be acknowledged that were not handled."""

    async def waits(message: GroupMessage) -> None: ...

    def yields(message: GroupMessage) -> Iterator[None]:
        yield

    async def does_both(message: GroupMessage) -> AsyncIterator[None]:
        yield

    for handler in (waits, yields, does_both):
        with refused("bad_request"):
            client.subscribe(filled, group="g")(handler)


class Awaited:
    """A result to await, as a handler may return that hides a coroutine function."""

    def __await__(self) -> Iterator[None]:
        yield


def test_a_handler_that_returns_something_to_await_has_failed(
    client: Client, filled: str, begin: Callable[[], Future[Counts]]
) -> None:
    asked: list[int] = []

    def handler(message: GroupMessage) -> Awaited:
        asked.append(message.pointer)
        return Awaited()

    client.subscribe(filled, group="g")(handler)
    run = begin()
    eventually(lambda: len(asked) >= 20, "all are handed out")
    client.stop()
    ((*_, handled, failed, _),) = run.result(DEADLINE_S)
    assert (handled, failed) == (0, len(asked))
    assert client.group(filled, "g", create=False).lag().records == 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_in_the_main_thread(client: Client, filled: str, number: signal.Signals) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]

    @client.subscribe(filled, group="g", concurrency=1)
    def handle(message: GroupMessage) -> None:
        if message.value == b"4":
            os.kill(os.getpid(), number)

    ((_, _, handled, failed, _),) = client.run()
    assert handled >= 5
    assert failed == 0
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert lag(client, filled) == 20 - handled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_as_a_run_begins_ends_it(
    pooled: Client, filled: str, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    start, unheard = threading.Thread.start, list[int]()

    def start_and_signal(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "quoth-dispatch":
            signal.raise_signal(number)

    def hear(found: int, _: object) -> None:
        unheard.append(found)
        pooled.stop()

    pooled.subscribe(filled, group="g")(lambda _: None)
    monkeypatch.setattr(threading.Thread, "start", start_and_signal)
    previous = signal.signal(number, hear)
    try:
        pooled.run()
        assert signal.getsignal(number) is hear
    finally:
        signal.signal(number, previous)
    assert unheard == []


SCRIPT = """
import os, signal, sys, threading, quoth

client = quoth.connect(sys.argv[1])

@client.subscribe(sys.argv[2], group="g", concurrency=1)
def handle(message):
    if message.value == b"3":
        os.kill(os.getpid(), signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()

client.run()
"""


def test_a_second_signal_ends_the_program(broker: BrokerProcess, client: Client, filled: str) -> None:
    ended = run_script(SCRIPT, broker.url, filled)
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.returncode == -signal.SIGINT
