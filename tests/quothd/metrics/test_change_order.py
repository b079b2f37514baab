"""The order in which topics change, compared with a list."""

from __future__ import annotations

import random
from dataclasses import dataclass

from quothd.metrics.broker_metrics import STALE_MAX, ChangeOrder


@dataclass(eq=False)
class Changing:
    name: str
    serial: int = 0


def pages(order: ChangeOrder[Changing], serial: int) -> list[Changing]:
    """Return all that has changed since, page by page."""
    found: list[Changing] = []
    while serial < order.serial:
        changed, reached = order.since(serial)
        assert reached > serial
        assert len(changed) <= order.examined_max
        found, serial = found + changed, reached
    return found


def test_random_changes_come_in_their_order_and_each_topic_once(seed: int) -> None:
    rng = random.Random(seed)
    order: ChangeOrder[Changing] = ChangeOrder(1_000_000)
    order.examined_max = rng.randrange(1, 200)
    model: dict[str, Changing] = {}
    marks = [(1_000_000, 0)]
    log: list[Changing] = []
    for step in range(10_000):
        name = f"t{rng.randrange(50)}"
        one = model.setdefault(name, Changing(name))
        if rng.random() < 0.05:
            order.forget(one)
            del model[name]
        else:
            order.touch(one)
            log.append(one)
            assert order.serial == one.serial
        if step % 97 == 0:
            marks.append((order.serial, len(log)))
            for serial, length in rng.sample(marks, min(5, len(marks))):
                live = [one for one in log[length:] if model.get(one.name) is one]
                last = [one for at, one in enumerate(live) if one not in live[at + 1 :]]
                assert pages(order, serial) == last
    assert len(order._changed) <= 2 * len(model) + STALE_MAX + 1, "outdated places are dropped"


def test_a_serial_of_an_earlier_process_lies_before_all_changes() -> None:
    first: ChangeOrder[Changing] = ChangeOrder(1_000_000)
    for _ in range(100):
        first.touch(Changing("t"))
    second: ChangeOrder[Changing] = ChangeOrder(2_000_000)
    topic = Changing("t")
    second.touch(topic)
    assert second.since(first.serial) == ([topic], second.serial)
    assert second.since(second.serial) == ([], second.serial)


def test_one_call_looks_at_no_more_places_than_it_may() -> None:
    """Outdated ones count, so a call may find nothing, and yet leave some."""
    order: ChangeOrder[Changing] = ChangeOrder(1_000)
    order.examined_max = 3
    busy, idle = Changing("busy"), Changing("idle")
    for one in (busy, busy, busy, busy, idle, busy):
        order.touch(one)
    assert order.since(1) == ([], 1_003)
    assert order.since(1_003) == ([idle, busy], order.serial)
    order.touch(idle)
    assert order.since(1_003) == ([busy], 1_006)
    assert order.since(1_006) == ([idle], order.serial)
