"""A broker with its good client under attack by floods, and the figures of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import NamedTuple

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer
from kit.deadlines import eventually, pause
from kit.floods.attackers import attackers
from kit.floods.bounds import SLOW_S, SLOWER_MAX
from kit.floods.cores import pin, shared_out
from kit.floods.floods import BIG, FETCHED_BYTES, GROUPED, LIMITED, SLOW, STAGED
from kit.floods.good_client import TOPIC
from kit.floods.measuring import GoodClient, Interval, Latency, MemoryWatch, good_client, memory_of
from kit.machine.processes import descriptors, resident_bytes
from quothd.connections.stuck import STUCK_MAX
from quothwire.protocol.group_messages import OpenGroup
from quothwire.protocol.messages import CreateTopic

MACHINE_BYTES = 2 * 2**30
"""A broker that takes more is killed: the machine has other work."""
SETTLED_S = 10.0
"""Time within which memory and descriptors are given back once the attackers are gone."""
KEPT_BYTES = 128 * 2**20
"""Memory that a broker may keep afterwards: the heaps of its threads keep 16 MiB each at their ends, and
connections that libzmq does not close keep their messages."""
OPEN_MORE = STUCK_MAX + 10
"""Descriptors that may be open then and were not before: those of connections that libzmq does not close, and
of topics, which open and hibernate all the time."""
KEPT_ON_DISK = 64 * 2**20
"""Size of the topics that publishes go to, so that they do not fill the disk."""
WARM = 50
"""Pairs of requests before the first figure."""
ROUNDS, ROUNDS_MAX = 2, 6
"""Of a measurement: other programs of the machine may slow down one after the other."""


class Round(NamedTuple):
    """A quiet time and an attack behind it."""

    quiet: Interval
    flood: Interval


class Figures(NamedTuple):
    """The outcome of an attack. Sizes in bytes, times in seconds.

    before, peak, after: resident memory; after as soon as it was given back, at the latest after `SETTLED_S`.
    peak_at: since the beginning of the first attack. settled_s: time until memory and descriptors were given
    back, infinity for never. quiet, flooded: the better of the rounds' latencies. sent: by each flood.
    """

    before: int
    peak: int
    peak_at: float
    after: int
    descriptors_before: int
    descriptors_after: int
    settled_s: float
    quiet: Latency
    flooded: Latency
    is_killed: bool
    sent: dict[str, Counter[str]]

    @property
    def ratio(self) -> float:
        """Return how many times the p99 of the quiet time that of the flood is."""
        return self.flooded.p99 / self.quiet.p99

    def __str__(self) -> str:
        mib, ms = 2**20, 1_000
        killed = ", killed" if self.is_killed else ""
        return (
            f"RSS {self.before // mib} -> {self.peak // mib} MiB after {self.peak_at:.1f} s{killed}, "
            f"{self.after // mib} MiB {self.settled_s:.1f} s later; "
            f"p50 {self.quiet.p50 * ms:.2f} -> {self.flooded.p50 * ms:.2f} ms, "
            f"p99 {self.quiet.p99 * ms:.2f} -> {self.flooded.p99 * ms:.2f} ms (x {self.ratio:.1f}); "
            f"descriptors {self.descriptors_before} -> {self.descriptors_after}; "
            + "; ".join(f"{name} {dict(sent)}" for name, sent in self.sent.items())
        )


def is_fast(quiet: Latency, flooded: Latency, slow_s: float) -> bool:
    """Return True if a good client is not much slower under attack, or faster than so many seconds anyway."""
    return flooded.p99 < max(SLOWER_MAX * quiet.p99, slow_s)


class AttackedBroker:
    """A broker under attack. Made by `attacked`."""

    def __init__(self, broker: BrokerProcess, client: GoodClient, watch: MemoryWatch) -> None:
        self.broker = broker
        self.client = client
        self._watch = watch
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return how long it is watched."""
        return time.monotonic() - self._began

    def measure(
        self,
        floods: Sequence[str],
        *,
        slow_s: float = SLOW_S,
        quiet_s: float = 1.0,
        flood_s: float = 2.0,
    ) -> Figures:
        """Attack with all floods at once, quiet and attack in turn; wait until memory is given back.

        It takes two rounds, or more until the better ones have a good latency. slow_s: see `is_fast`.
        """
        ours, theirs = shared_out()
        pid = self.broker.pid
        before, open_before = resident_bytes(pid), descriptors(pid)
        done: list[Round] = []
        with attackers(self.broker.url, floods, theirs) as attack:
            while len(done) < ROUNDS or (len(done) < ROUNDS_MAX and not is_fast(*self._best(done), slow_s)):
                began = time.monotonic()
                pause(quiet_s)
                middle = time.monotonic()
                attack.begin(flood_s)
                pause(flood_s)
                ended = time.monotonic()
                sent = attack.finish()
                done.append(Round(Interval(began, middle), Interval(middle, ended)))
                pin(pid, ours)
        settled_s = self._settle(before + KEPT_BYTES, open_before)
        peak, peak_at = self._watch.peak(Interval(done[0].flood.began, time.monotonic()))
        is_killed = self._watch.is_killed
        if is_killed:
            self.client.kill()
        return Figures(
            before,
            peak,
            peak_at,
            0 if is_killed else resident_bytes(pid),
            open_before,
            0 if is_killed else descriptors(pid),
            settled_s,
            *self._best(done),
            is_killed,
            sent,
        )

    def _best(self, done: Sequence[Round]) -> tuple[Latency, Latency]:
        """Return the better latencies of rounds: of quiet times, and under attack."""
        quiet = min((self.client.latency(one.quiet) for one in done), key=lambda one: one.p99)
        return quiet, min((self.client.latency(one.flood) for one in done), key=lambda one: one.p99)

    def _settle(self, size: int, count: int) -> float:
        """Wait until memory and descriptors are given back; returns the seconds, infinity for never."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < SETTLED_S and not self._watch.is_killed:
            if resident_bytes(self.broker.pid) <= size and descriptors(self.broker.pid) <= count + OPEN_MORE:
                return waited
            pause(0.02)
        return inf


@contextmanager
def attacked(broker: BrokerProcess, peer: FastPeer) -> Iterator[AttackedBroker]:
    """Prepare the topics that the floods need, and begin to measure. peer: a client of the broker."""
    for topic in (BIG, STAGED, GROUPED, TOPIC):
        peer.call(CreateTopic(), topic)
    for topic, durability in ((SLOW, "synced"), (LIMITED, "written")):
        kept = {"durability": durability, "size_limit": KEPT_ON_DISK // 2, "max_bytes": KEPT_ON_DISK}
        peer.call(CreateTopic(kept), topic)
    for _ in range(4):
        peer.publish(BIG, [bytes(FETCHED_BYTES - 1_024)])
    peer.call(OpenGroup("flooded"), GROUPED)
    ours, _ = shared_out()
    pin(broker.pid, ours)
    with (
        memory_of(broker.pid, MACHINE_BYTES) as watch,
        good_client(broker.url, ours) as client,
    ):
        eventually(lambda: len(client.acknowledged) > WARM, "the good client is at work")
        yield AttackedBroker(broker, client, watch)
