"""A scan of the cold history of a topic delays publishes to it little.

A consumer process scans sealed segments that are not in memory, without pause, while another client
publishes single records at `written` to the same topic. Windows with and without the scan alternate, each
ratio is one of neighbours, and the median counts. The test runs alone; other programs can still spoil a
measurement, so the best of a few is taken.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median, quantiles

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.broker.scanning import scanning
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


def latency(fast: FastPeer) -> float:
    """Publish one record after the other for a while; the seconds of one at the 95th percentile."""
    took = []
    now = time.perf_counter()
    until = now + WINDOW_S
    while now < until:
        fast.publish("t", [b"x" * 100])
        took.append(time.perf_counter() - now)
        now += took[-1]
    return quantiles(took, n=20)[-1]


@pytest.mark.alone
def test_a_scan_of_cold_history_at_most_doubles_the_latency_of_publishes(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """At the 95th percentile."""
    append_to(make_topic(tmp_path / "data", "t", SEGMENT_BYTES), HISTORY_BYTES, BATCH_BYTES, seal=True)
    broker = start_broker()
    fast = peers.fast(broker)
    (folder,) = broker.topics_directory.iterdir()
    ratios: list[float] = []
    with scanning(broker.url, "t", folder, tmp_path / "counter") as scan:
        latency(fast)
        while len(ratios) < MEASUREMENTS:
            rounds, before = [], scan.records
            for _ in range(ROUNDS):
                quiet = latency(fast)
                with scan.running():
                    rounds.append(latency(fast) / quiet)
            assert scan.records > before
            ratios.append(median(rounds))
            scanned = (scan.records - before) * BATCH_BYTES / MIB / ROUNDS / WINDOW_S
            print(f"ratio of p95 {ratios[-1]:.2f}, {scanned:.0f} MiB/s scanned")
            if ratios[-1] <= FACTOR:
                return
    pytest.fail(f"p95 grows by {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
