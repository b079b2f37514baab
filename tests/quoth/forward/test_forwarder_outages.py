"""Forwarding over a slow link, or to a broker that refuses for a while: each record arrives once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, Wire
from quoth import Client, QuothError
from quoth.core.adaptive_timeout import (
    TIMEOUT_MAX_S,
    TIMEOUT_S,
    WINDOW_BYTES,
    WINDOW_BYTES_MAX,
    AdaptiveTimeout,
)
from quoth.forward.forwarder import Forwarder
from quoth.forward.source import ForwardingProgress, LostRecords, StoredSource
from quothcli.commands.records.forwarding import log_source
from quothlog import Log
from quothwire.errors import error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation

SIZE = 120_000
ERRORS = 8
"""In a row: more than it takes until a pause is as long as it gets."""
RATE = 150_000


class Watching:
    """Counts events."""

    def __init__(self) -> None:
        self.waited: list[str] = []
        self.pauses: list[float] = []
        self.records = 0

    def repeats(self, code: str) -> int:
        """Count the last waits in a row for this code."""
        return sum(1 for _ in takewhile(lambda waited: waited == code, reversed(self.waited)))

    def forwarded(self, records: int, size: int) -> None:
        """See `Events`."""
        self.records += records

    def waits(self, problem: QuothError, seconds: float) -> None:
        """See `Events`."""
        self.waited.append(problem.code)
        self.pauses.append(seconds)

    def lost(self, losses: LostRecords) -> None:
        """See `Events`."""
        raise AssertionError(losses)

    def began_anew(self, text: str) -> None:
        """See `Events`."""
        raise AssertionError(text)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A link on which a batch takes twice the timeout."""
    with Wire(broker.url) as wire:
        wire.rate = RATE
        yield wire


def test_batches_slower_than_the_timeout_arrive_once(
    wire: Wire, broker: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    values = [bytes([number]) * SIZE for number in range(3)]
    with Log.open(tmp_path / "log") as log:
        for value in values:
            log.append(value)
    watching = Watching()
    saved: list[ForwardingProgress] = []
    with Client(wire.url, None, 20.0) as slow:
        forwarder = Forwarder(
            log_source(tmp_path / "log"),
            slow,
            topic,
            progress=None,
            save=saved.append,
            events=watching,
            timeout=AdaptiveTimeout(0.4),
        )
        forwarder.run(until_end=True)
    assert watching.waited, "it was slow"
    assert saved[-1].ordinal == 3
    assert wire.passed < 3 * SIZE * len(values)
    with quoth.connect(broker.url) as client:
        assert [message.value for message in client.read(topic)] == values


@pytest.mark.parametrize("code", ["busy", "disk_low"])
def test_pauses_after_errors_of_an_outage_stay_short(
    context: Context, broker: BrokerProcess, tmp_path: Path, topic: str, code: str
) -> None:
    """The pauses after other errors grow."""
    with Log.open(tmp_path / "log") as log:
        log.append(b"value")
    watching = Watching()

    def refuse(call: Call) -> QuothError | bool:
        if call.operation is not Operation.HELLO and watching.repeats(code) < ERRORS:
            return error(code, "of the test")
        return False

    with Meddler(context, broker.url) as meddler, Client(meddler.url, None, 0.25) as client:
        meddler.on_request = refuse
        forwarder = Forwarder(
            log_source(tmp_path / "log"),
            client,
            topic,
            progress=None,
            save=lambda _: None,
            events=watching,
            pause=lambda _: None,
        )
        forwarder.run(until_end=True)
    passing = {code, "timed_out", "disconnected"}
    assert {*watching.waited} <= passing, "the deadline may pass before it is connected, or answered"
    most = 5.0 if code == "disk_low" else 1.0
    assert most / 2 <= max(watching.pauses) <= most
    with quoth.connect(broker.url) as reader:
        assert [message.value for message in reader.read(topic)] == [b"value"]


def test_quick_answers_widen_the_window_and_slow_ones_lengthen_the_timeout() -> None:
    learnt = AdaptiveTimeout()
    assert (learnt.seconds, learnt.window) == (TIMEOUT_S, WINDOW_BYTES)
    for _ in range(20):
        learnt.acknowledged(0.01)
    assert (learnt.seconds, learnt.window) == (TIMEOUT_S, WINDOW_BYTES_MAX)
    learnt.acknowledged(100.0)
    assert (learnt.seconds, learnt.window) == (400.0, WINDOW_BYTES_MAX // 2)
    for _ in range(20):
        learnt.expired()
    assert (learnt.seconds, learnt.window) == (TIMEOUT_MAX_S, 0)
    learnt.acknowledged(0.01)
    assert (learnt.seconds, learnt.window) == (TIMEOUT_S, WINDOW_BYTES)


def test_source_topic_that_is_made_anew_is_another_one(broker: BrokerProcess, topic: str) -> None:
    """Its records are not taken for the next ones of the former topic, however often it is looked at."""
    with quoth.connect(broker.url) as client:
        client.publish(topic, b"former")
        source = StoredSource(client, topic)
        (former,) = source.wait(10.0)
        client.delete_topic(topic)
        client.publish(topic, b"other")
        for _ in range(2):
            with pytest.raises(QuothError, match="was deleted, and made anew"):
                source.wait(10.0)
        assert former.header.records == 1
