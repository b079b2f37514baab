"""Order by key: members that act at random never have two records of a key, nor one before an earlier one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from kit.broker.peers import FastPeer, Peers
from quothd import Broker
from quothwire import batch
from quothwire.protocol.group_messages import GroupFetch, GroupFetched, GroupSettle, GroupSettled, OpenGroup
from quothwire.protocol.messages import Publish
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements
from quothwire.record import Record, records_of

RECORDS = 1_500
KEYS = 25
GIVEN_BACK = (Settle.NACK, Settle.RELEASE)
SETTINGS = {"key_order": True, "lease": 600.0, "backoff": [0.0], "max_attempts": 0, "max_in_flight": 100}


class Held(NamedTuple):
    """A record under a lease."""

    record: Record
    token: int

    @property
    def number(self) -> int:
        return int(self.record.value)


class Workers:
    """Members of a group that fetch, acknowledge and give back at random, and the account of it.

    todo: of each key the numbers of the records that are not finished, in their order.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.todo: dict[bytes | None, list[int]] = {}
        self.held: list[Held] = []
        self._number = 0

    @property
    def left(self) -> int:
        return sum(map(len, self.todo.values()))

    def publish(self, fast: FastPeer) -> None:
        while self._number < RECORDS:
            count = min(self.chance.choice((1, 1, 10, 100)), RECORDS - self._number)
            numbers = range(self._number, self._number + count)
            keys = [self._key() for _ in numbers]
            for number, key in zip(numbers, keys, strict=True):
                self.todo.setdefault(key, []).append(number)
            _publish(fast, numbers, keys)
            self._number += count

    def fetch(self, fast: FastPeer) -> int:
        """Fetch, and check what comes; returns the number of records."""
        member, most = f"m{self.chance.randrange(3)}", self.chance.choice((1, 5, 50))
        answer = fast.request(GroupFetch("g", member, records_max=most), "t")
        found = answer.reply
        assert isinstance(found, GroupFetched)
        records = {
            record.pointer: record
            for raw in batch.split(answer.payload, found.log)
            for record in records_of(batch.decode(raw, found.log))
        }
        got = 0
        for token, _, first, last in found.leases:
            for pointer in range(first, last + 1):
                self._take(Held(records[pointer], token))
                got += 1
        assert got <= most
        return got

    def settle(self, fast: FastPeer, least: int) -> None:
        """Acknowledge, give back and release what is held, until no more than so many are held."""
        self.chance.shuffle(self.held)
        rows = []
        while len(self.held) > least:
            one = self.held.pop()
            kind = Settle.ACK if self.chance.random() < 0.8 else self.chance.choice(GIVEN_BACK)
            if kind is Settle.ACK:
                self.todo[one.record.key].remove(one.number)
            pointer, delay = one.record.pointer, 1 if kind is Settle.NACK else 0
            rows.append(Settlement(kind, pointer, pointer, one.token, delay))
        rows.sort(key=lambda row: row.first)
        settled = fast.call(GroupSettle("g", len(rows)), "t", encode_settlements(rows))
        assert isinstance(settled, GroupSettled)
        assert (settled.late, settled.lost) == (0, [])
        assert settled.records == sum(row.kind is Settle.ACK for row in rows)

    def _key(self) -> bytes | None:
        if self.chance.random() < 0.1:
            return None
        return b"k%d" % min(self.chance.randrange(KEYS), self.chance.randrange(KEYS))

    def _take(self, one: Held) -> None:
        key = one.record.key
        if key is not None:
            assert all(other.record.key != key for other in self.held), "two records of a key"
            assert self.todo[key][0] == one.number, "an earlier record of the key is not finished"
        assert all(other.number != one.number for other in self.held), "a record twice"
        self.held.append(one)


def _publish(fast: FastPeer, numbers: Sequence[int], keys: Sequence[bytes | None]) -> None:
    """Publish records whose values are their numbers."""
    fast.call(Publish(), "t", batch.encode([b"%d" % number for number in numbers], keys))


def test_records_of_a_key_are_handed_out_one_after_the_other_also_after_a_restart(
    embed: Callable[..., Broker], peers: Peers, seed: int
) -> None:
    broker = embed(port=0)
    workers = Workers(seed)
    fast = peers.fast(broker)
    workers.publish(fast)
    fast.call(OpenGroup("g", settings=SETTINGS), "t")
    while workers.left > RECORDS // 2:
        if not workers.fetch(fast) or len(workers.held) > 40:
            workers.settle(fast, workers.chance.randrange(20))
    workers.held.clear()  # a restart ends all leases
    broker.stop()
    fast = peers.fast(embed(port=0))
    while workers.left:
        if not workers.fetch(fast) or len(workers.held) > 40:
            workers.settle(fast, workers.chance.randrange(20) if workers.left > 40 else 0)
    assert not workers.fetch(fast)


@pytest.mark.parametrize("records", [1, 30])
def test_a_record_that_is_given_back_holds_up_its_key_and_no_other_one(
    embed: Callable[..., Broker], peers: Peers, records: int
) -> None:
    fast = peers.fast(embed(port=0))
    keys = [b"a", b"b", b"a", None, b"b", b"c"]
    _publish(fast, range(6), keys)
    fast.call(OpenGroup("g", settings={**SETTINGS, "backoff": [60.0]}), "t")
    workers = Workers(0)
    workers.todo = {b"a": [0, 2], b"b": [1, 4], b"c": [5], None: [3]}
    while workers.fetch(fast):
        pass
    assert sorted(one.number for one in workers.held) == [0, 1, 3, 5]
    given_back = next(one for one in workers.held if one.number == 0)
    workers.held.remove(given_back)
    rows = [Settlement(Settle.NACK, given_back.record.pointer, given_back.record.pointer, given_back.token)]
    fast.call(GroupSettle("g", 1), "t", encode_settlements(rows))
    workers.chance.random = lambda: 0.0  # type: ignore[method-assign]  # acknowledge all
    workers.settle(fast, 0)
    found = fast.call(GroupFetch("g", records_max=records), "t")
    assert [last - first + 1 for *_, first, last in found.leases] == [1], "the next record of b, and no other"
