"""Floods of subscriptions: they delay no request, and the broker's memory stays small."""

from __future__ import annotations

import time
from collections.abc import Callable

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, Subscriber
from kit.broker.subscribers import Flood, counted, hears, subscriptions_are
from kit.machine.processes import resident_bytes
from kit.scale import times
from quothwire.protocol import announcement
from quothwire.protocol.messages import Ping

PREFIXES = times(200_000, 1_000_000)
SOCKETS = 5
WORST_S = 0.25
"""Of a publish or a ping. Removing 100,000 subscriptions from libzmq's memory takes 0.34 s."""
GROWTH_BYTES_MAX = 48 * 2**20
"""Each 100,000 subscriptions take 122 MB of libzmq's memory, if it has them."""
TRIES = 10
"""Another program may keep the processor to itself for as long as the worst request takes."""


def worst_until(fast: FastPeer, broker: BrokerProcess, is_over: Callable[[], bool]) -> tuple[float, int]:
    """Publish and ping until something has happened; returns the worst latency and the largest memory."""
    worst, largest = 0.0, 0
    while not is_over():
        for _ in range(20):
            began = time.perf_counter()
            fast.publish("t", [b"x"])
            fast.call(Ping())
            worst = max(worst, time.perf_counter() - began)
        largest = max(largest, resident_bytes(broker.pid))
    return worst, largest


def has_closed(fast: FastPeer, more: int) -> Callable[[], bool]:
    """Return a check for so many more connections that the broker has closed."""
    wanted = counted(fast, "subscribers_closed") + more
    return lambda: counted(fast, "subscribers_closed") >= wanted


def test_a_flood_of_subscriptions_delays_no_request_and_leaves_no_memory(
    broker: BrokerProcess,
    fast: FastPeer,
    flood: Callable[..., Flood],
    subscribe: Callable[..., Subscriber],
) -> None:
    """Neither while it comes again and again, nor when its process is killed. Other subscribers go on."""
    good = subscribe(broker.announcements, announcement.subscription("t"))
    hears(fast, good, "t")
    before = resident_bytes(broker.pid)
    delays = []
    for attempt in range(1, TRIES + 1):
        hostile = flood(broker.announcements, PREFIXES, SOCKETS)
        during, largest = worst_until(fast, broker, has_closed(fast, 2 * SOCKETS))
        hostile.kill()
        after, later = worst_until(fast, broker, lambda: counted(fast, "subscriptions") == 1)
        assert max(largest, later) - before < GROWTH_BYTES_MAX
        hears(fast, good, "t")
        delays.append((during, after))
        if max(during, after) < WORST_S:
            break
        assert attempt < TRIES, delays
    subscriptions_are(fast, 1)
    assert broker.stderr.count("event=subscriber_closed") <= 1 + 20
    broker.wait_for("limit=connection_subscriptions_max")


def test_many_connections_with_few_subscriptions_each_stay_below_the_limit_of_all(
    start_broker: StartBroker,
    peers: Peers,
    flood: Callable[..., Flood],
    subscribe: Callable[..., Subscriber],
) -> None:
    """Connections with most of them are closed; one with a few stays."""
    limit, connections = 4_000, 40
    broker = start_broker(subscriptions_max=limit)
    fast = peers.fast(broker)
    good = subscribe(broker.announcements, announcement.subscription("t"))
    hears(fast, good, "t")
    before = resident_bytes(broker.pid)
    hostile = flood(broker.announcements, 2 * limit, connections)
    _, largest = worst_until(fast, broker, has_closed(fast, connections))
    assert counted(fast, "subscriptions") <= limit
    hears(fast, good, "t")
    assert largest - before < GROWTH_BYTES_MAX
    broker.wait_for("limit=subscriptions_max")
    hostile.kill()
    subscriptions_are(fast, 1)
    hears(fast, good, "t")
