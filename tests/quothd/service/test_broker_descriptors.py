"""The limit of open files and connections: the daemon raises it, and goes on where it is reached."""

from __future__ import annotations

import errno
import resource
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker, behind
from kit.broker.peers import FastPeer, Peers, code_of, replied
from kit.deadlines import eventually
from kit.machine.processes import descriptors_left, needs_prlimit, needs_proc
from kit.rules import add_rules
from kit.zmtp import opening, raw
from quothd import Broker
from quothd.service.descriptors import (
    DESCRIPTORS_LOW,
    DESCRIPTORS_MOST,
    TOPIC_DESCRIPTORS,
    descriptors_max,
    topics_that_fit,
)
from quothd.service.scrub_supervisor import Scrubber
from quothwire.protocol.messages import Ping, Pong

LIMIT = 256
PATIENT = "from quothd.frontend import endpoints\nendpoints.HANDSHAKE_MS = 60_000"
"""Gives a handshake more time than a busy machine takes for it."""


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """Return the prefix of a command whose process gets a limit of descriptors."""
    return "sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"


def counted(fast: FastPeer, name: str) -> int:
    return int(fast.status(limit=0).counters[name])


# -- the limit -----------------------------------------------------------------------------------------------


@needs_prlimit
def test_the_daemon_raises_its_limit_of_descriptors_to_the_hard_one(start_broker: StartBroker) -> None:
    hard = DESCRIPTORS_LOW + 1
    broker = start_broker(prefix=limited(256, hard))
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert "descriptors_low" not in broker.stderr


@needs_prlimit
def test_a_low_limit_of_descriptors_is_logged_at_the_start(start_broker: StartBroker) -> None:
    broker = start_broker(prefix=limited(256, 512))
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (512, 512)
    assert "descriptors=512" in broker.wait_for("event=descriptors_low")


def test_the_limit_of_descriptors_is_a_number_even_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert descriptors_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda limit: unlimited)
    assert descriptors_max() == DESCRIPTORS_MOST


def test_active_topics_get_half_of_the_descriptors_at_most() -> None:
    for limit, fit in ((1, 1), (1_024, 102), (DESCRIPTORS_LOW, 256), (65_536, 256)):
        assert topics_that_fit(256, limit) == fit
        assert fit == 1 or fit * TOPIC_DESCRIPTORS <= limit / 2


# -- beyond it -----------------------------------------------------------------------------------------------


@needs_proc
@needs_prlimit
def test_more_topics_than_the_descriptors_hold_take_turns(start_broker: StartBroker) -> None:
    """Every publish is stored, and the rules and the check of segments have descriptors, too."""
    count = 150
    broker = start_broker(prefix=limited(160, 160), scrub_interval=0.2)
    with quoth.connect(broker.url) as client:
        add_rules(client, "spread", 'topics = ["in"]\n[[rule]]\nto = "out.{key}"', begin=0)
        for number in range(count):
            client.publish("in", b"value", key=f"{number}".encode())
        names = {f"out.{number}" for number in range(count)}
        eventually(lambda: names <= {*client.topics()}, "the rules have made all topics")
        for name in names:
            client.publish(name, b"value")
        status = client.status()
        assert (status.counters["rules_running"], status.counters["rules_restarts"]) == (1, 0)
        eventually(lambda: client.status().counters["scrub_rounds"] > 0, "a round is done")
    assert "Too many open files" not in broker.stderr


def fill(broker: BrokerProcess, stack: ExitStack) -> None:
    """Open more connections than the process may have descriptors. Some are refused, or wait."""
    for _ in range(LIMIT):
        connection = stack.enter_context(raw(broker))
        with suppress(ConnectionError):
            connection.sendall(opening())


def publishes(fast: FastPeer, name: str) -> bool:
    return code_of(fast.answer_to(fast.send_publish(name, [b"x"]))) == ""


@needs_proc
@needs_prlimit
def test_connections_beyond_the_descriptors_wait_and_the_others_get_answers(
    start_broker: StartBroker, peers: Peers
) -> None:
    """An open topic goes on, another one is busy, and all of them serve once connections leave."""
    prefix = *limited(LIMIT, LIMIT), *behind(PATIENT)
    broker = start_broker(prefix=prefix, connections_max=10_000, scrub_interval=0.2, worker_timeout=60)
    fast = peers.fast(broker)
    fast.publish("open", [b"before"])
    names = [f"new.{number}" for number in range(20)]
    with ExitStack() as stack:
        fill(broker, stack)
        assert 'problem="Too many open files"' in broker.wait_for("event=accept_failed")
        counters = fast.status(limit=0).counters
        assert (counters["accepts_failed"] > 0, counters.get("handshakes_failed", 0)) == (True, 0)
        for _ in range(100):
            assert isinstance(fast.call(Ping()), Pong)
            fast.publish("open", [b"during"])
        stack.enter_context(descriptors_left(broker.pid, 0))
        codes = {code_of(one) for one in fast.answers_to(fast.send_publish(name, [b"x"]) for name in names)}
        assert codes == {"busy"}, "there is no descriptor for another topic"
        broker.wait_for("event=scrub_failed")
        rounds = counted(fast, "scrub_rounds")
    for name in names:
        eventually(partial(publishes, fast, name), "the topic can be opened")
    late = peers.fast(broker)
    assert isinstance(late.call(Ping()), Pong)
    eventually(lambda: counted(late, "scrub_rounds") > rounds, "another round is done")
    assert [one.value for one in late.read_all("open")] == [b"before", *[b"during"] * 100]
    assert "front_end_short" not in broker.stderr
    assert "front_end_failed" not in broker.stderr


def test_a_lack_of_descriptors_in_the_front_end_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it is: the loop goes on, and does again what was interrupted."""
    problems = [OSError(number, "none left") for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)]
    real = Scrubber.tick

    def tick(scrubber: Scrubber, now: float) -> None:
        if problems:
            raise problems.pop()
        real(scrubber, now)

    monkeypatch.setattr(Scrubber, "tick", tick)
    with Broker(tmp_path) as broker, FastPeer(broker.context, broker.url) as fast:
        assert isinstance(replied(fast.answer_to(fast.send(Ping()))), Pong)
        fast.publish("topic", [b"value"])
        assert broker.failure is None
    assert caplog.text.count("event=front_end_short") == 3
