"""Outages: however long a broker was away, its clients are served again within two seconds of its return."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, refused
from kit.broker.proxies import Wire
from kit.broker.subscribers import counted
from kit.client.outages import Figures, late, served_after
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.machine.networks import can_be_had
from kit.machine.ports import free_port
from kit.scale import long_form, times
from quoth import Ack
from quoth.connection.channel import Channel
from quoth.connection.connection import HEARTBEAT_MS, UNACKNOWLEDGED_S, WATCH, WATCH_S, Link
from quoth.connection.endpoint import Endpoint
from quoth.connection.tcp_watch import INFO, unacknowledged
from quoth.core.adaptive_timeout import AdaptiveTimeout
from quoth.core.request_state import RequestState
from quoth.forward.forwarder import Forwarder
from quoth.forward.window import ForwardedBatch
from quoth.merging.multi_reader import MultiReader, ReadPlan
from quoth.merging.rounds import ROUND_REST_MAX_S
from quothwire.errors import Disconnected
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Ping, Pong, Topics

RESUMED_S = 2.0
"""In which every client is served again."""
SECONDS = {"killed": 1.5, "frozen": 1.5, "cut": 4.0}
"""Outages that are short, and long enough for what doubles its pauses to be late."""
KINDS = tuple(SECONDS) if can_be_had() else ("killed", "frozen")
LONG_S = 600.0
STALLED_S = times(4, 12)
UNREAD = 3_000
NOW = 1_000.0


def times_of_all(seconds: Mapping[str, float], directory: Path) -> Figures:
    """Return when each client is served, by the kind of the outage; all kinds run at once."""
    figures = served_after({kind: seconds[kind] for kind in KINDS}, directory)
    assert min(map(len, figures.values())) > 24, "all kinds of clients are there"
    return figures


@pytest.mark.alone
@pytest.mark.timeout(240)
def test_every_client_is_served_within_two_seconds_of_the_brokers_return(tmp_path: Path) -> None:
    assert late(partial(times_of_all, SECONDS), RESUMED_S, tmp_path) == {}


@long_form
@pytest.mark.alone
@pytest.mark.timeout(LONG_S + 240)
def test_every_client_is_served_after_an_outage_of_ten_minutes(tmp_path: Path) -> None:
    measure = partial(times_of_all, dict.fromkeys(KINDS, LONG_S))
    assert late(measure, RESUMED_S, tmp_path, tries=1) == {}


def attend(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no check end a link as one that was neglected, which it is when this process stalls."""
    monkeypatch.setattr(link, "end_if_dead", lambda *, neglected: Link.end_if_dead(link, neglected=False))


def test_a_broker_that_reads_nothing_for_a_while_keeps_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host acknowledges no byte either, for its window is closed, but it is there."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as stalled:
        stalled.set(zmq.RCVHWM, 1)
        stalled.bind(url := f"tcp://127.0.0.1:{free_port()}")
        link = Link(context, Endpoint(url))
        attend(link, monkeypatch)
        try:
            eventually(lambda: link.wait(0.1) or link.connected, "the link is there")
            for _ in range(40):
                link.send([bytes(2**20)])
            until = time.monotonic() + STALLED_S
            while time.monotonic() < until:
                link.wait(until - time.monotonic())
            assert (link.connected, link.reconnects) == (True, 0)
            stalled.set(zmq.RCVTIMEO, 20_000)
            assert len([stalled.recv_multipart() for _ in range(40)]) == 40
        finally:
            link.close()


def test_a_client_with_thousands_of_unread_answers_outlives_its_broker(
    start_broker: StartBroker, peers: Peers
) -> None:
    """libzmq has heartbeats and stops to read at a thousand answers by default, which ended the process."""
    broker = start_broker()
    other = peers.fast(broker)
    with zmq.Context() as context:
        link = Link(context, Endpoint(broker.url))
        try:
            for number in range(UNREAD):
                assert link.socket.poll(int(DEADLINE_S * 1_000), zmq.POLLOUT)
                link.send([*binary_codec.encode_request(Ping(), number, "")])
            eventually(lambda: counted(other, "requests") > UNREAD, "they are answered")
            broker.kill()
            eventually(lambda: link.wait(0.1) or link.connected is False, "the link knows that it is gone")
        finally:
            link.close()


class Unwatched:
    """A link that no thread waits for. checks: whether it was neglected, for each check."""

    def __init__(self) -> None:
        self.checks: list[bool] = []

    def end_if_dead(self, *, neglected: bool) -> None:
        """See `Link`."""
        self.checks.append(neglected)


def test_a_thread_that_waits_for_one_connection_checks_the_others() -> None:
    other: Any = Unwatched()
    WATCH.add(other)
    with zmq.Context() as context:
        link = Link(context, Endpoint(f"tcp://127.0.0.1:{free_port()}"))
        eventually(lambda: link.wait(0.1) or other.checks, "it is checked")
        link.close()
    checks, now = len(other.checks), WATCH.checked_at
    for later in (2 * WATCH_S, 2.1 * WATCH_S, 3 * WATCH_S + 2 * UNACKNOWLEDGED_S):
        WATCH.check(now + later)
    assert other.checks[checks:] == [False, True]


def test_an_idle_connection_on_which_nothing_arrived_is_replaced(
    start_broker: StartBroker,
) -> None:
    """The broker's host may be about to send an answer again, seconds from now."""
    broker = start_broker()
    with zmq.Context() as context:
        channel = Channel(context, Endpoint(broker.url))
        try:
            channel.settle(RequestState(Ping()))
            broker.freeze()
            pause(UNACKNOWLEDGED_S + HEARTBEAT_MS / 1_000)
            again = RequestState(Ping(), deadline=time.monotonic() + DEADLINE_S)
            channel.ask(again)  # while it is frozen, so that nothing of it can come before
            os.kill(broker.pid, signal.SIGCONT)
            channel.settle(again)
            assert channel.link.reconnects == 1
        finally:
            channel.close()


def test_a_request_ends_with_a_connection_that_is_not_made_again(broker: BrokerProcess) -> None:
    """However late its deadline is: no answer can come any more."""
    with (
        Wire(broker.url) as wire,
        zmq.Context() as context,
        Channel(context, Endpoint(wire.url), once=True) as channel,
    ):
        channel.settle(RequestState(Ping()))
        wire.lose_answers()
        began = time.monotonic()
        asked = RequestState(Ping(), deadline=began + 3 * DEADLINE_S)
        channel.ask(asked)
        wire.cut()
        outcome = channel.settle(asked)
        assert isinstance(outcome, Disconnected)
        assert outcome.code == "disconnected"
        assert time.monotonic() - began < DEADLINE_S


def test_an_answer_to_a_request_that_was_given_up_does_not_stay_in_the_socket(
    start_broker: StartBroker,
) -> None:
    """An answer that stays there ends each wait at once: a thread that serves others, too, never rests."""
    with zmq.Context() as context, Channel(context, Endpoint(start_broker().url)) as channel:
        channel.ask(RequestState(Ping()))
        channel.asked.clear()
        assert channel.link.socket.poll(int(DEADLINE_S * 1_000))
        eventually(lambda: not (channel.hear(0.0) or channel.link.socket.poll(0)), "it is taken")


@pytest.mark.parametrize(("checked", "looks"), [(60.0, 0), (0.0, 1)], ids=["soon", "later"])
def test_a_channel_looks_for_a_lost_connection_before_it_sends_unless_it_has_just_done_so(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, checked: float, looks: int
) -> None:
    """The event of a connection that was made before would have a request sent twice."""
    monkeypatch.setattr("quoth.connection.channel.CHECKED_S", checked)
    with zmq.Context() as context, Channel(context, Endpoint(broker.url)) as channel:
        channel.settle(RequestState(Ping()))
        waits: list[float] = []
        wait = channel.link.wait

        def noted(seconds: float, now: float | None = None) -> bool:
            waits.append(seconds)
            return wait(seconds, now)

        monkeypatch.setattr(channel.link, "wait", noted)
        channel.ask(RequestState(Ping()))
        assert waits == [0.0] * looks


def test_a_wait_behind_a_deadline_raises_the_error_again_until_the_answer_comes(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    with zmq.Context() as context, Channel(context, Endpoint(broker.url)) as channel:
        attend(channel.link, monkeypatch)
        channel.settle(RequestState(Ping()))
        broker.freeze()
        late = RequestState(Ping(), deadline=time.monotonic())
        channel.ask(late)
        for _ in range(2):
            with refused("timed_out"):
                channel.hear(math.inf)
        os.kill(broker.pid, signal.SIGCONT)
        assert channel.link.socket.poll(int(DEADLINE_S * 1_000))
        assert [request for request, _ in channel.hear(DEADLINE_S)] == [late]


def test_the_pause_between_attempts_is_the_time_without_acknowledgement() -> None:
    """A silence that the other host's own attempts end is not all of it."""
    for retransmits, probes, present, silent, seconds in (
        (0, 0, 0.2, 600.0, 0.0),
        (1, 0, 0.4, 9.0, 0.0),
        (2, 0, 0.8, 2.6, 2.6),
        (0, 2, 0.2, 2.6, 2.6),
        (3, 0, 1.6, 0.1, 1.4),
        (4, 0, 3.2, 0.1, 3.0),
        (5, 0, 6.4, 0.1, 6.2),
        (5, 0, 6.4, 9.0, 9.0),
    ):
        info = INFO.pack(retransmits, probes, round(present * 1e6), 0, round(silent * 1e3))
        assert unacknowledged(info) == pytest.approx(seconds), (retransmits, probes, present, silent)


# -- what waits, by a clock of the test ---------------------------------------------------------------------


def test_an_outage_within_a_round_does_not_lengthen_the_pause_of_a_merge() -> None:
    for seconds in (1.0, 10.0, 60.0, 600.0):
        merge = MultiReader(["*"], ReadPlan(follow=True, ordered=True), None, 3.0)
        (listing,) = merge.ask(NOW, math.inf)
        merge.take(listing, Answer(0, Topics([]), b""), NOW)
        asked = {one.what: one for one in merge.ask(NOW, 0.0)}
        merge.waited(seconds)
        back = NOW + seconds
        merge.take(asked["ping"], Answer(0, Pong(50), b""), back)
        for listing in merge.ask(back, 0.0):  # of the round, and whether there are new topics by now
            merge.take(listing, Answer(0, Topics([]), b""), back)
        assert "ping" in {one.what for one in merge.ask(back + ROUND_REST_MAX_S, 0.0)}, seconds


class RecordingTimeout(AdaptiveTimeout):
    """Keeps the durations that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.durations: list[float] = []

    def acknowledged(self, seconds: float) -> None:
        """See `AdaptiveTimeout`."""
        self.durations.append(seconds)
        super().acknowledged(seconds)


def test_a_batch_that_was_sent_twice_does_not_change_the_adaptive_timeout() -> None:
    nothing: Any = None
    timeout = RecordingTimeout()
    forwarder = Forwarder(
        nothing, nothing, "copy", progress=None, save=nothing, events=nothing, timeout=timeout
    )
    for copies in (1, 2):
        sent = ForwardedBatch(header=nothing, payload=b"", begins=False, copies=copies)
        forwarder._settle(sent, Ack(1, 1, 1, "synced", duplicate=False))
    assert len(timeout.durations) == 1
