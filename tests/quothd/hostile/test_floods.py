"""Floods by attackers of every kind: the broker keeps its bounds, and a good client works beside them.

The broker and the good client run on one core, the attackers on the others, in the quiet time as under
attack: what is measured is the broker's work for the attackers and not the machine's. The latency is the best
one of several rounds, since other programs of the machine only add to it.
"""

from __future__ import annotations

from math import inf

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.floods.attacked_broker import AttackedBroker, Figures, attacked, is_fast
from kit.floods.bounds import BOUNDED, MEMORY_MAX, SLOW_S
from kit.floods.floods import FLOODS
from kit.floods.good_client import TOPIC
from kit.machine.processes import needs_proc
from kit.scale import long_form, times

USUAL = {"subscriptions", "namesakes", "small_parts", "unread", "waits", "topics"}
"""Floods that are tried one by one each time: those that have killed or frozen a broker."""
TOGETHER_SLOW_S = 0.6
"""A p99 that is good enough while eighteen floods compete for the core of the broker."""
LOGGED_PER_S = 50
"""Lines that the broker may log, whatever an attacker does."""

pytestmark = [needs_proc, pytest.mark.alone]


def hold_bounds(under: AttackedBroker, figures: Figures, peer: FastPeer, slow_s: float = SLOW_S) -> None:
    """Check that a broker kept its bounds under attack and lost no acknowledged record."""
    print(figures)
    for flood, sent in figures.sent.items():
        assert sent["connections"], flood
        assert sent["bytes"] or flood == "idle", flood
    assert not figures.is_killed, "it took the memory of the machine"
    assert under.broker.exit_status is None, under.broker.stderr
    assert figures.peak < MEMORY_MAX, str(figures)
    assert figures.settled_s < inf, str(figures)
    assert is_fast(figures.quiet, figures.flooded, slow_s), str(figures)
    under.client.end()
    stored = [record.pointer for record in peer.read_all(TOPIC)]
    assert stored[: len(under.client.acknowledged)] == under.client.acknowledged
    assert len(under.broker.stderr.splitlines()) < LOGGED_PER_S * under.seconds, under.broker.stderr


@pytest.mark.parametrize(
    "flood", [one if one in USUAL else pytest.param(one, marks=long_form) for one in FLOODS]
)
def test_a_flood_leaves_the_broker_within_its_bounds_and_a_good_client_at_work(
    start_broker: StartBroker, peers: Peers, flood: str
) -> None:
    broker = start_broker(**BOUNDED)
    peer = peers.fast(broker)
    with attacked(broker, peer) as under:
        figures = under.measure([flood], quiet_s=0.5, flood_s=times(1, 10))
        hold_bounds(under, figures, peer)


@pytest.mark.timeout(600)
def test_all_floods_together_leave_the_broker_within_its_bounds_and_a_good_client_at_work(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(**BOUNDED)
    peer = peers.fast(broker)
    with attacked(broker, peer) as under:
        figures = under.measure(
            [*FLOODS], slow_s=TOGETHER_SLOW_S, quiet_s=times(1, 10), flood_s=times(2, 150)
        )
        hold_bounds(under, figures, peer, TOGETHER_SLOW_S)
