"""The publish of a large transaction delays neither writers nor readers of its topic.

Other clients publish and fetch single records without pause, while gigabytes become a part of the log, and
while a transaction of the largest number of batches does. Other programs can spoil a measurement, so the
bounds are far above what is measured; they catch a client that waits for the gigabytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import quantiles

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, replied
from kit.broker.transactions import Job
from kit.scale import long_form
from quothwire.protocol.transaction import BATCHES_MAX, StagedPart

MIB = 2**20
PARTS = 8
WAIT_S = 5.0
"""For as many headers as there can be; 0.4 s were measured."""


class Beside:
    """Two clients that publish and fetch until the end of a block, and the seconds that each request took."""

    def __init__(self, topic: str, writer: FastPeer, reader: FastPeer) -> None:
        self.writes: list[float] = []
        self.reads: list[float] = []
        self._ended = threading.Event()
        self._after = reader.describe(topic).last
        acts: list[tuple[list[float], Callable[[], object]]] = [
            (self.writes, lambda: writer.publish(topic, [b"x" * 100])),
            (self.reads, lambda: reader.fetch(topic, self._after, records_max=10)),
        ]
        self._threads = [threading.Thread(target=self._go_on, args=act) for act in acts]

    def _go_on(self, took: list[float], act: Callable[[], object]) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            act()
            took.append(time.perf_counter() - began)

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@long_form
@pytest.mark.alone
@pytest.mark.parametrize(
    ("batches", "size"),
    [(2_048, MIB - 1_000), (BATCHES_MAX, 1_000)],
    ids=["large batches", "many batches"],
)
def test_a_large_transaction_delays_no_other_request(
    start_broker: StartBroker, peers: Peers, batches: int, size: int
) -> None:
    """Its reply comes when all of it is on the disk. Others wait for a part of that at most."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"0"])
    job = Job(fast, "t")
    value = b"v" * size
    named = [job.stage(1, part, [[value]] * (batches // PARTS)) for part in range(PARTS)]
    assert sum(part.batches for part in named) == batches
    with Beside("t", peers.fast(broker), peers.fast(broker)) as beside:
        began = time.perf_counter()
        reply = replied(fast.answer_to(job.send_publish(1, named), 100))
        took = time.perf_counter() - began
    assert reply.count == batches
    slowest = {"publish": quantiles(beside.writes, n=100)[-1], "fetch": quantiles(beside.reads, n=100)[-1]}
    print(f"{batches} x {size} in {took:.2f} s; slowest of a hundred: {slowest}, of {len(beside.writes)}")
    assert max(slowest.values()) < (WAIT_S if batches == BATCHES_MAX else took / 2)
    assert job.publish(1, [StagedPart(0, 1, 1, 1)]).duplicate
