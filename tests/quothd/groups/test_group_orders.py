"""Two members and one lease that may expire: every order of their acts has the outcome of plain rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import pytest

from kit.groups.group_topics import GroupTopic
from quothwire.protocol.group_messages import GroupSettled
from quothwire.protocol.settlement import Settle, Settlement

LEASE_S, LONG_MS = 10.0, 1_000_000
ACTS = ("ack", "nack", "extend", "expire", "fetch", "ack of b")


@dataclass
class Rules:
    """One record, which member a has under a lease. owner: the member that has it, "" for none."""

    owner: str = "a"
    is_extended: bool = False
    is_finished: bool = False
    is_dead: bool = False

    def ack(self, member: str) -> tuple[int, int]:
        """Return how many records an ack finishes, and how many of them late."""
        if self.is_finished or self.is_dead:
            return 0, 0
        late = int(self.owner != member)
        self.is_finished, self.owner = True, ""
        return 1, late

    def leave(self, *, is_term: bool) -> bool:
        """Member a gives it back, or rejects it; returns False without its lease."""
        if self.owner != "a":
            return False
        self.owner, self.is_dead = "", is_term
        return True

    def extend(self) -> bool:
        self.is_extended |= self.owner == "a"
        return self.owner == "a"

    def expire(self) -> None:
        if self.owner == "a" and not self.is_extended:
            self.owner = ""

    def fetch(self) -> bool:
        """Return True if member b gets it."""
        if self.owner or self.is_finished or self.is_dead:
            return False
        self.owner = "b"
        return True


class Members:
    """Both members in a group of their own, and the rules beside it."""

    def __init__(self, topic: GroupTopic, group: str, last: Settle) -> None:
        self._topic, self._group, self._last = topic, group, last
        self._rules = Rules()
        topic.make_group(group, lease=LEASE_S, backoff=[0.0])
        ((self._a, _, self._pointer, _),) = topic.fetch(1, group, "a").rows
        self._b = 0

    def act(self, name: str) -> None:
        """Act once, and compare the outcome."""
        match name:
            case "ack":
                assert self._ack(self._a) == self._rules.ack("a")
            case "ack of b" if self._b:
                assert self._ack(self._b) == self._rules.ack("b")
            case "nack":
                is_term = self._last is Settle.TERM
                assert self._has(self._last, 0 if is_term else 1) == self._rules.leave(is_term=is_term)
            case "extend":
                assert self._has(Settle.EXTEND, LONG_MS) == self._rules.extend()
            case "expire":
                self._topic.pass_time(LEASE_S + 1)
                self._rules.expire()
            case "fetch":
                rows = self._topic.fetch(1, self._group, "b", lease_ms=LONG_MS).rows
                assert bool(rows) == self._rules.fetch()
                self._b = rows[0][0] if rows else self._b

    def end(self) -> None:
        """Check the end: the record is finished, a dead letter, or handed out again."""
        self._topic.pass_time(2 * LONG_MS / 1_000)
        rules = self._rules
        is_left = not rules.is_finished and not rules.is_dead
        assert bool(self._topic.fetch(1, self._group, "c").rows) == is_left
        assert self._topic.info(self._group).dead == int(rules.is_dead)

    def _ack(self, token: int) -> tuple[int, int]:
        done = self._settle(Settle.ACK, token)
        assert done.lost == []
        return done.records, done.late

    def _has(self, kind: Settle, milliseconds: int) -> bool:
        """Return True if a row with the lease of member a has an effect."""
        return self._settle(kind, self._a, milliseconds).lost == []

    def _settle(self, kind: Settle, token: int, milliseconds: int = 0) -> GroupSettled:
        row = Settlement(kind, self._pointer, self._pointer, token, milliseconds)
        return self._topic.settle(row, group=self._group)


@pytest.mark.parametrize("last", [Settle.NACK, Settle.TERM])
def test_two_members_and_an_expired_lease_in_every_order(
    open_groups: Callable[..., GroupTopic], last: Settle
) -> None:
    topic = open_groups()
    topic.publish(b"x")
    for number, order in enumerate(permutations(ACTS)):
        members = Members(topic, f"g{number}", last)
        try:
            for name in order:
                members.act(name)
            members.end()
        except AssertionError as problem:
            raise AssertionError(f"in the order {order}: {problem}") from problem
