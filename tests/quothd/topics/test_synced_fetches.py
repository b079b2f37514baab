"""Fetches of synced records alone: what a loss of power may still take is neither sent nor waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import NAME, pending, reply_in
from kit.broker.operations import OPERATIONS, publish
from kit.broker.peers import Peers, found_in, refused
from quothd.requests.pending_request import PendingRequest
from quothwire import batch
from quothwire.protocol.messages import CreateTopic, Fetch, Fetched

SYNC_S = 300.0
"""Between two fsyncs of a topic, unless a request asks for one."""


@pytest.fixture
def broker(tmp_path: Path) -> MemoryBroker:
    """A broker whose topics stay open, and sync every five minutes."""
    return MemoryBroker(tmp_path, sync_interval=SYNC_S, worker_timeout=1e6)


def ask(broker: MemoryBroker, *requests: PendingRequest) -> PendingRequest:
    """Let requests be handled, and all that follows from them; returns the last one."""
    for request in requests:
        broker.ask(request)
    broker.settle()
    return requests[-1]


def synced(**arguments: Any) -> PendingRequest:
    return pending(Fetch(durability="synced", **arguments))


def found(broker: MemoryBroker, request: PendingRequest) -> tuple[Fetched, list[bytes]]:
    """The reply to a fetch, and the values that came with it."""
    assert broker.answers[request] == [""]
    reply, payload = reply_in(broker.frames[request])
    assert isinstance(reply, Fetched)
    raws = batch.split(payload, reply.log)
    return reply, [value for raw in raws for value in batch.decode(raw, reply.log).values]


def values(broker: MemoryBroker, request: PendingRequest) -> list[bytes]:
    return found(broker, ask(broker, request))[1]


def test_only_synced_records_are_sent(broker: MemoryBroker) -> None:
    ask(broker, publish("written", b"1", b"2"))
    assert values(broker, pending(Fetch())) == [b"1", b"2"]
    reply, sent = found(broker, ask(broker, synced()))
    assert (reply.next, reply.newest, reply.end, sent) == (0, 0, 0, [])
    ask(broker, publish("synced", b"3"))
    ask(broker, publish("written", b"4"))
    reply, sent = found(broker, ask(broker, synced()))
    assert (reply.next, reply.end, sent) == (reply.newest, 3, [b"1", b"2", b"3"])
    assert reply.newest < broker.newest[NAME]
    assert values(broker, pending(Fetch(durability="written"))) == [b"1", b"2", b"3", b"4"]
    broker.pass_time(SYNC_S)
    broker.settle()
    assert values(broker, synced()) == [b"1", b"2", b"3", b"4"]


def test_long_poll_is_answered_by_the_sync_and_by_nothing_before_it(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write does not even let the topic look at it: thousands of them may wait for one fsync."""
    ask(broker, publish("synced", b"1"))
    after = broker.newest[NAME]
    patient, plain = synced(after=after, wait_ms=600_000), pending(Fetch(after=after, wait_ms=600_000))
    ask(broker, patient, plain)
    seen: list[PendingRequest] = []
    submit = broker.dispatcher.submit

    def watched(request: PendingRequest, now: float) -> None:
        seen.append(request)
        submit(request, now)

    monkeypatch.setattr(broker.dispatcher, "submit", watched)
    for value in (b"2", b"3"):
        ask(broker, publish("written", value))
    assert found(broker, plain)[1] == [b"2"]
    assert (broker.answers[patient], patient in seen) == ([], False)
    broker.pass_time(SYNC_S)
    broker.settle()
    assert found(broker, patient)[1] == [b"2", b"3"]
    assert seen.count(patient) == 1


def test_long_poll_that_began_before_its_topic_was_made_waits_for_a_synced_record(
    broker: MemoryBroker,
) -> None:
    early = ask(broker, synced(wait_ms=600_000))
    ask(broker, publish("written", b"1"))
    assert broker.answers[early] == []
    ask(broker, publish("synced", b"2"))
    assert found(broker, early)[1] == [b"1", b"2"]


def test_end_of_the_wait_reports_what_is_synced(broker: MemoryBroker) -> None:
    ask(broker, publish("synced", b"1"))
    after = broker.newest[NAME]
    waiting = ask(broker, synced(after=after, wait_ms=10_000))
    ask(broker, publish("written", b"2"))
    broker.pass_time(11.0)
    reply, sent = found(broker, waiting)
    assert (reply.next, reply.newest, reply.end, sent) == (after, after, 1, [])


def test_end_of_a_range_is_reached_once_it_is_synced(broker: MemoryBroker) -> None:
    """Until then a record in it may be lost, and another one come."""
    ask(broker, publish("written", b"1", b"2"), publish("written", b"3"))
    until = broker.newest[NAME] - 1
    waiting = ask(broker, synced(until=until, wait_ms=600_000))
    assert broker.answers[waiting] == []
    ask(broker, publish("written", b"4"))
    broker.pass_time(SYNC_S)
    broker.settle()
    reply, sent = found(broker, waiting)
    assert sent == [b"1", b"2"]
    assert reply.next == until


@pytest.mark.parametrize("act", ["roll", "trim"])
def test_sealing_a_segment_is_a_sync(broker: MemoryBroker, act: str) -> None:
    ask(broker, publish("written", b"1"))
    waiting = ask(broker, synced(wait_ms=600_000))
    ask(broker, OPERATIONS["roll"]())
    assert found(broker, waiting)[1] == [b"1"]
    if act == "trim":
        at_end = ask(broker, synced(after=broker.newest[NAME], wait_ms=600_000))
        ask(broker, OPERATIONS[act]())
        assert broker.answers[at_end] == []


def test_topic_that_hibernates_has_synced_everything(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path, sync_interval=SYNC_S)
    ask(broker, publish("written", b"1"))
    waiting = ask(broker, synced(wait_ms=600_000))
    for _ in range(3):
        broker.pass_time(2.0)
        broker.settle()
    assert found(broker, waiting)[1] == [b"1"]
    assert values(broker, synced()) == [b"1"]


def test_topic_of_level_synced_shows_the_same_to_all(broker: MemoryBroker) -> None:
    """No fetch sees what its topic does not show, whatever level it asks for."""
    ask(broker, pending(CreateTopic({"durability": "synced"})))
    request = broker.ask(publish("written", b"1"))
    while broker.front_end() or any(thread.step() for thread in broker.threads):
        pass
    assert broker.answers[request] == []
    for level in ("", "written", "synced"):
        asked = broker.ask(pending(Fetch(durability=level)))
        while broker.front_end() or any(thread.step() for thread in broker.threads):
            pass
        assert found(broker, asked)[1] == []
    broker.settle()
    for level in ("", "written", "synced"):
        assert values(broker, pending(Fetch(durability=level))) == [b"1"]


def test_sync_alone_is_not_announced(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that see written records would look again for nothing."""
    announced: list[int] = []
    monkeypatch.setattr(broker.dispatcher, "_announce", lambda _name, newest: announced.append(newest))
    ask(broker, publish("written", b"1"))
    before = [*announced]
    assert before[-1] > 0
    broker.pass_time(SYNC_S)
    broker.settle()
    assert values(broker, synced()) == [b"1"]
    assert announced == before


def absent(_broker: MemoryBroker) -> None:
    """The topic does not exist."""


def opened(broker: MemoryBroker) -> None:
    """The topic is open."""
    ask(broker, OPERATIONS["publish"]())


def hibernating(broker: MemoryBroker) -> None:
    """The topic hibernates."""
    opened(broker)
    broker.dispatcher.scheduler.hibernate(broker.dispatcher.registry.entries[NAME])
    broker.settle()


@pytest.mark.parametrize("state", [absent, opened, hibernating])
def test_level_that_does_not_exist_is_refused(
    broker: MemoryBroker, state: Callable[[MemoryBroker], None]
) -> None:
    state(broker)
    for wait_ms in (0, 60_000):
        asked = ask(broker, pending(Fetch(durability="strict", wait_ms=wait_ms)))
        assert broker.code(asked) == "bad_request"


def test_synced_reader_beside_a_writer_gets_each_record_after_its_fsync(
    start_broker: StartBroker, peers: Peers
) -> None:
    """On real sockets and files. A plain reader has had it since it was written."""
    broker = start_broker(sync_interval=600.0, worker_timeout=600.0)
    writer, reader = peers.fast(broker), peers.fast(broker)
    first = writer.publish("t", [b"1"])
    assert reader.fetch("t").values == [b"1"]
    assert reader.fetch("t", durability="synced").values == []
    waiting = reader.send_fetch("t", durability="synced", wait_ms=60_000)
    writer.publish("t", [b"2"])
    assert reader.fetch("t", first.last).values == [b"2"]
    assert waiting not in reader._early
    writer.publish("t", [b"3"], "synced")
    assert found_in(reader.answer_to(waiting), 0).values == [b"1", b"2", b"3"]
    with refused("bad_request"):
        reader.fetch("t", durability="lax")
