"""The process of the routing rules: the broker starts it with the first rule, and ends it with itself."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually, hold
from kit.machine.processes import children, needs_proc, runs
from kit.rules import add_rules
from quothd import Broker, Config
from quothd.service import rules_supervisor
from quothd.service.rules_supervisor import RulesSupervisor
from quothrules.matching.topic_patterns import RULES_TOPIC

COPY = 'topics = ["a"]\n[[rule]]\nto = "b"'
pytestmark = needs_proc


def counted(fast: FastPeer, name: str) -> int:
    return int(fast.status(limit=0).counters[name])


def test_both_sides_know_the_topic_by_the_same_name() -> None:
    assert rules_supervisor.RULES_TOPIC == RULES_TOPIC


def test_the_process_begins_with_the_first_rule_and_is_started_again(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(scrub_interval=0)
    fast = peers.fast(broker)
    fast.publish("a", [b"1"])
    assert counted(fast, "rules_running") == 0
    assert children(broker.pid) == []
    with quoth.connect(broker.url) as client:
        add_rules(client, "copy", COPY, begin=0)
        broker.wait_for("event=rules_changed rules=copy version=1")
        (process,) = children(broker.pid)
        assert counted(fast, "rules_running") == 1
        eventually(lambda: "b" in client.topics(), "the rule has effect")
        os.kill(process, signal.SIGKILL)
        broker.wait_for("event=rules_ended status=-9")
        eventually(lambda: counted(fast, "rules_restarts") == 1, "it runs again")
        client.publish("a", b"2")
        eventually(lambda: [one.value for one in client.read("b")] == [b"1", b"2"], "the rule has effect")
        client.delete_topic(RULES_TOPIC)
        eventually(lambda: children(broker.pid) == [], "without rules there is no process")


@pytest.mark.parametrize("by_signal", [True, False])
def test_the_process_ends_with_its_broker(start_broker: StartBroker, by_signal: bool) -> None:
    """At once, with its own processes; and it is there again after a restart."""
    broker = start_broker(scrub_interval=0)
    with quoth.connect(broker.url) as client:
        add_rules(client, "copy", COPY)
    for _ in range(2):
        broker.wait_for("event=rules_changed rules=copy")
        (process,) = children(broker.pid)
        evaluators = children(process)
        assert len(evaluators) == 1
        if by_signal:
            broker.terminate()
        else:
            broker.kill()
        eventually(lambda every=(process, *evaluators): not any(map(runs, every)), "all have ended")  # type: ignore[misc]
        broker.restart()


def test_a_broker_without_a_reachable_address_has_no_process(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, quoth.connect(broker) as client:
        before = children(os.getpid())
        add_rules(client, "copy", COPY)
        hold(lambda: children(os.getpid()) == before, "there is no process", 0.6)


def test_the_pause_between_two_starts_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot run is no reason to be busy."""
    monkeypatch.setattr(rules_supervisor, "_MODULE", "quothrules.there_is_none")
    supervisor = RulesSupervisor(Config(), ("inproc://x", "tcp://127.0.0.1:1"), lambda: True)
    begun: list[float] = []
    now = 0.0
    while len(begun) < 5:
        before = supervisor._starts
        supervisor.tick(now)
        if supervisor._starts > before:
            begun.append(now)
            process = supervisor._process
            assert process is not None
            process.wait(20)
        now += 0.25
    assert [round(b - a, 2) for a, b in pairwise(begun)] == [0.75, 1.25, 2.25, 4.25]
    supervisor.stop()
    assert supervisor.counters() == {"rules_running": 0, "rules_restarts": 4}
