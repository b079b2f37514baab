"""Lots: the records of an answer that belong to each lease, damage, the size of the next one."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from quoth import Gap
from quoth.groups.lot import GROWTH, LEASE_PART, LOT_S_MAX, RECORDS_MAX, Lot, LotSize
from quothwire import batch
from quothwire.batch import HEADER_BYTES
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetched

LOG = 99


def stored(base: int, records: int, ordinal: int | None = None) -> bytes:
    """A batch of a log whose records have their pointers as values."""
    made = batch.encode([b"%d" % pointer for pointer in range(base, base + records)])
    header = batch.parse_header(made, 0).placed(base, base if ordinal is None else ordinal)
    return batch.stamp(header, LOG) + made[HEADER_BYTES:]


class Opened(Lot):
    """A lot with the gaps that it has reported."""

    def __init__(self, leases: list[tuple[int, int]], *batches: bytes) -> None:
        self.gaps: list[Gap] = []
        rows = [[number, 1, *bounds] for number, bounds in enumerate(leases, 1)]
        reply = GroupFetched(LOG, 1, rows, 30_000, 0, 0, 1_000, 1_000)
        super().__init__("t", Answer(0, reply, b"".join(batches)), 10.0, self.gaps.append)

    def taken(self) -> list[tuple[int, int, int]]:
        """Take everything; returns the token and the bounds of each part."""
        found = []
        while (part := self.next()) is not None:
            assert [int(value) for value in part.batch.values] == list(
                range(part.batch.first, part.until + 1)
            )
            found.append((part.lease.token, part.batch.first, part.until))
        return found


def test_a_lease_may_have_several_batches_and_the_parts_follow_each_other() -> None:
    lot = Opened([(10, 31)], stored(10, 3, 0), stored(20, 2, 3), stored(30, 2, 5))
    parts = []
    while (part := lot.next()) is not None:
        parts.append(part)
    assert [(part.after, part.until) for part in parts] == [(9, 12), (12, 21), (21, 31)]
    assert {part.lease.token for part in parts} == {1}
    assert parts[0].lease.deadline == 40.0
    assert (bool(lot), lot.gaps) == (False, [])


def test_records_of_a_batch_that_are_not_leased_are_left_out() -> None:
    leases = [(11, 12), (14, 14), (16, 17), (25, 25)]
    lot = Opened(leases, stored(10, 9), stored(20, 10))
    assert lot.taken() == [(1, 11, 12), (2, 14, 14), (3, 16, 17), (4, 25, 25)]


def test_leases_come_in_any_order_and_a_batch_may_come_twice() -> None:
    lot = Opened([(15, 16), (11, 12), (18, 19)], stored(10, 10), stored(10, 10))
    assert lot.taken() == [(1, 15, 16), (2, 11, 12), (3, 18, 19)]
    lot = Opened([(15, 16), (1, 2)], stored(10, 10), stored(1, 4))
    assert lot.taken() == [(1, 15, 16), (2, 1, 2)]


def test_random_leases_of_random_batches(rng: random.Random) -> None:
    for _ in range(200):
        batches, pointer = [], 1
        for _ in range(rng.randint(1, 5)):
            batches.append((pointer, rng.randint(1, 6)))
            pointer += batches[-1][1] + rng.randint(0, 2)
        pointers = [base + row for base, records in batches for row in range(records)]
        kept = [one for one in pointers if rng.random() < 0.7] or pointers[:1]
        runs = [
            [one for _, one in run] for _, run in groupby(enumerate(kept), key=lambda pair: pair[1] - pair[0])
        ]
        lot = Opened([(run[0], run[-1]) for run in runs], *(stored(*one) for one in batches))
        found = [pointer for _, first, last in lot.taken() for pointer in range(first, last + 1)]
        assert found == kept
        assert lot.left() == []


def test_a_batch_that_does_not_check_is_reported_and_its_range_is_kept() -> None:
    bad = bytearray(stored(20, 5, 3))
    bad[-1] ^= 1
    lot = Opened([(10, 32)], stored(10, 3, 0), bytes(bad), stored(30, 3, 8))
    assert lot.taken() == [(1, 10, 12), (1, 30, 32)]
    assert lot.gaps == [Gap("t", 19, 25, 5, "damaged", 3)]
    assert [(one.after, one.until) for one in lot.damaged] == [(12, 24)]


def test_missing_ordinals_within_a_lease_are_a_gap() -> None:
    lot = Opened([(10, 32)], stored(10, 3, 0), stored(30, 3, 8))
    assert lot.taken() == [(1, 10, 12), (1, 30, 32)]
    assert lot.gaps == [Gap("t", 12, 30, 5, "damaged", 3)]


def test_behind_a_broken_header_everything_is_left() -> None:
    lot = Opened([(10, 12), (20, 24)], stored(10, 3), b"\0" * 100)
    assert lot.taken() == [(1, 10, 12)]
    assert lot.is_broken
    assert [(one.lease.token, one.after, one.until) for one in lot.left()] == [(2, 19, 24)]


# -- the size of the next one -------------------------------------------------------------------------------


def test_a_lot_grows_as_long_as_it_is_handled_quickly() -> None:
    size = LotSize("at_least_once", 30.0, 10 * RECORDS_MAX, 5)
    found = [size.records]
    while size.records < RECORDS_MAX:
        size.handled(size.records, 1e-6 * size.records)
        found.append(size.records)
    assert found == [1, 4, 16, 64, 256, 1_000]
    assert GROWTH == 4


@pytest.mark.parametrize("lease", [1.0, 30.0])
def test_a_lot_is_handled_within_a_moment(lease: float) -> None:
    size = LotSize("at_least_once", lease, 10 * RECORDS_MAX, 5)
    longest = min(LOT_S_MAX, LEASE_PART * lease)
    for number in (100, 100, 50, 10):
        size.handled(number, 0.01 * number)
        assert size.records == pytest.approx(longest / 0.01, abs=1)
    assert not size.is_quick or LEASE_PART * lease >= 0.1
    size.handled(1, 100.0)
    assert size.records == 1
    assert not size.is_quick


@pytest.mark.parametrize(
    ("mode", "in_flight", "attempts", "most"),
    [
        ("at_most_once", 1_000, 5, 1),
        ("at_least_once", 1_000, 1, 1),
        ("at_least_once", 1, 5, 1),
        ("at_least_once", 100, 5, 50),
    ],
)
def test_a_lot_leaves_something_to_others(mode: str, in_flight: int, attempts: int, most: int) -> None:
    size = LotSize(mode, 30.0, in_flight, attempts)
    for _ in range(10):
        size.handled(size.records, 1e-6)
    assert size.records == most
