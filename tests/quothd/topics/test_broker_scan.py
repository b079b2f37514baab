"""A scan of the cold history of a topic delays publishes to it little.

A consumer process scans sealed segments that are not in memory, without pause, while another client
publishes single records at `written` to the same topic. Windows with and without the scan alternate, each
ratio is one of neighbours, and the median counts. The test runs alone; other programs can still spoil a
measurement, so the best of a few is taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.broker.scanning import Scan, scanning
from kit.disk.topics import append_to, make_topic
from kit.scale import times

MIB = 2**20
HISTORY_BYTES = times(96, 2_048) * MIB
SEGMENT_BYTES = 8 * MIB
BATCH_BYTES = 64 * 2**10
WINDOW_S = times(3, 10) / 10
ROUNDS = times(7, 41)
MEASUREMENTS = 6
FACTOR = 2.0

Latencies = list[float]


class Bench:
    """A broker with a long history, a publisher, a consumer."""

    def __init__(self, fast: FastPeer, scan: Scan) -> None:
        self._fast = fast
        self.scan = scan

    def publish(self) -> Latencies:
        """Publish one record after the other for a while; the seconds that each took."""
        took = []
        now = time.perf_counter()
        until = now + WINDOW_S
        while now < until:
            self._fast.publish("t", [b"x" * 100])
            took.append(time.perf_counter() - now)
            now += took[-1]
        return took

    def round(self) -> tuple[Latencies, Latencies]:
        """A window without the scan, and one with it."""
        quiet = self.publish()
        with self.scan.running():
            return quiet, self.publish()


@pytest.fixture
def bench(start_broker: StartBroker, peers: Peers, tmp_path: Path) -> Iterator[Bench]:
    """A broker whose topic has its whole history in sealed segments."""
    append_to(make_topic(tmp_path / "data", "t", SEGMENT_BYTES), HISTORY_BYTES, BATCH_BYTES, seal=True)
    broker = start_broker()
    with scanning(broker.url, "t", folder_of(broker), tmp_path / "counter") as scan:
        bench = Bench(peers.fast(broker), scan)
        bench.publish()
        yield bench


def folder_of(broker: BrokerProcess) -> Path:
    """The folder of its only topic."""
    (folder,) = broker.topics_directory.iterdir()
    return folder


def p95(latencies: Latencies) -> float:
    """The 95th percentile."""
    return quantiles(latencies, n=20)[-1]


def describe(name: str, windows: list[Latencies]) -> None:
    """Print three percentiles of the publishes in all windows of a kind."""
    cuts = [quantiles(window, n=100) for window in windows]
    shown = [f"p{row + 1} {median(one[row] for one in cuts) * 1e3:.2f}" for row in (49, 94, 98)]
    print(f"  {name}: {', '.join(shown)} ms, {sum(map(len, windows))} publishes")


@pytest.mark.alone
def test_a_scan_of_cold_history_at_most_doubles_the_latency_of_publishes(bench: Bench) -> None:
    """At the 95th percentile."""
    ratios = []
    for _ in range(MEASUREMENTS):
        before = bench.scan.records
        rounds = [bench.round() for _ in range(ROUNDS)]
        scanned = (bench.scan.records - before) * BATCH_BYTES
        assert scanned
        ratios.append(median(p95(scanning) / p95(quiet) for quiet, scanning in rounds))
        print(f"ratio of p95 {ratios[-1]:.2f}, {scanned / MIB / ROUNDS / WINDOW_S:.0f} MiB/s scanned")
        for row, name in enumerate(("quiet", "while it is scanned")):
            describe(name, [one[row] for one in rounds])
        if ratios[-1] <= FACTOR:
            return
    pytest.fail(f"p95 grows by {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
