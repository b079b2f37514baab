"""Fetches for a group that wait at the front end: none of them waits while there is something for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import pending, reply_in
from kit.disk.logs import encoded
from kit.scale import times
from quothd.frontend.topic_states import State
from quothd.requests.pending_request import PendingRequest
from quothwire.protocol.group_messages import (
    DescribeGroup,
    GroupFetch,
    GroupFetched,
    GroupSettle,
    OpenGroup,
    SeekGroup,
    UpdateGroup,
)
from quothwire.protocol.messages import Publish, Request
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

WAIT_MS = 600_000
STEPS = 150
KINDS = (Settle.ACK, Settle.ACK, Settle.ACK, Settle.NACK, Settle.EXTEND, Settle.TERM, Settle.RELEASE)


class Members:
    """Members of one group that take records, wait for more, and settle what they have in any order.

    held: the rows of the leases that they got. waiting: the fetches that have no answer.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.broker = MemoryBroker(directory)
        self.held: list[list[int]] = []
        self.waiting: list[PendingRequest] = []
        self.publish()
        self.call(OpenGroup("g", 0, settings))

    def call(self, request: Request, payload: bytes | None = None) -> Any:
        asked = self.broker.ask(pending(request, payload))
        self.broker.settle()
        return reply_in(self.broker.frames[asked])[0]

    def publish(self, records: int = 1) -> None:
        self.call(Publish(), encoded([b"value"] * records))

    def fetch(self, records: int = 1, wait_ms: int = WAIT_MS) -> PendingRequest:
        """Ask for records; those that came to this or an earlier fetch are held."""
        asked = self.broker.ask(pending(GroupFetch("g", "m", records, wait_ms=wait_ms)))
        self.waiting.append(asked)
        self.take()
        return asked

    def take(self) -> None:
        """Let the broker do all that it can, and take its answers."""
        self.broker.settle()
        for asked in [one for one in self.waiting if self.broker.answers[one]]:
            self.waiting.remove(asked)
            self.held += self.leases(asked)

    def leases(self, asked: PendingRequest) -> list[list[int]]:
        """Return the rows in the reply to a fetch."""
        reply = reply_in(self.broker.frames[asked])[0]
        assert isinstance(reply, GroupFetched)
        return reply.leases

    def settle(self, kind: Settle, row: list[int], milliseconds: int = 0) -> None:
        token, _, first, last = row
        rows = [Settlement(kind, first, last, token, milliseconds)]
        self.call(GroupSettle("g", len(rows)), encode_settlements(rows))
        self.take()

    def pass_time(self, seconds: float) -> None:
        self.broker.pass_time(seconds)
        self.take()

    def check(self) -> None:
        """Check that a fetch which does not wait finds nothing, if others wait."""
        waiting = len(self.waiting)
        if waiting:
            found = self.leases(self.fetch(wait_ms=0))
            assert (found, len(self.waiting)) == ([], waiting)


def test_a_fetch_that_waits_for_room_gets_what_is_published_after_the_acks(tmp_path: Path) -> None:
    members = Members(tmp_path, max_in_flight=1)
    members.fetch()
    members.fetch()
    assert len(members.waiting) == 1, "the group is full"
    members.settle(Settle.ACK, members.held.pop())
    assert len(members.waiting) == 1, "there is room, and no record"
    members.publish()
    members.take()
    assert (len(members.held), members.waiting) == (1, [])


def test_a_fetch_that_finds_nothing_opens_no_topic(tmp_path: Path) -> None:
    """Its member counts as seen all the same."""
    members = Members(tmp_path)
    members.fetch()
    members.settle(Settle.ACK, members.held.pop())
    for _ in range(3):
        members.pass_time(4.0)
        assert not members.waiting
        assert not members.broker.threads, "it hibernates"
        members.fetch(wait_ms=0)
        members.fetch(wait_ms=1_000)
        assert (members.broker.threads, len(members.waiting)) == ([], 1)
    members.pass_time(4.0)
    (member,) = members.call(DescribeGroup("g")).members
    assert (member["name"], member["idle"]) == ("m", pytest.approx(4.0, abs=0.1))
    members.pass_time(4.0)
    members.fetch()
    assert not members.broker.threads
    members.publish()
    members.take()
    assert (len(members.held), members.waiting) == (1, [])


def test_a_fetch_that_comes_while_its_topic_closes_does_not_open_it_again(tmp_path: Path) -> None:
    members = Members(tmp_path)
    members.fetch()
    members.settle(Settle.ACK, members.held.pop())
    broker = members.broker
    (entry,) = broker.dispatcher.registry
    while entry.state is State.OPEN:
        broker.pass_time(1.0)
        broker.front_end() or any(thread.step() for thread in broker.threads)
    assert entry.state is State.CLOSING
    members.waiting = [broker.ask(pending(GroupFetch("g", "m", wait_ms=WAIT_MS)))]
    broker.settle()
    assert (entry.state, entry.outstanding) == (State.HIBERNATING, 0)
    members.publish()
    members.take()
    assert (len(members.held), members.waiting) == (1, [])


def test_a_fetch_opens_a_topic_for_what_its_group_has(tmp_path: Path) -> None:
    """Records behind its cursor, and those whose lease has ended."""
    members = Members(tmp_path, lease=10.0, backoff=[0.0])
    members.publish()
    members.pass_time(4.0)
    assert not members.broker.threads
    members.fetch()
    members.fetch()
    assert len(members.held) == 2
    members.pass_time(4.0)
    members.fetch()
    assert (members.broker.threads, len(members.waiting)) == ([], 1)
    members.pass_time(6.1)
    assert (len(members.held), len(members.waiting)) == (3, 0)


@pytest.mark.parametrize("key_order", [False, True])
@pytest.mark.parametrize("seed", range(times(5, 200)))
def test_no_fetch_waits_while_there_is_something_for_it(tmp_path: Path, seed: int, key_order: bool) -> None:
    rng = random.Random(seed)
    settings = {"lease": 5.0, "backoff": [rng.choice((0.0, 2.0))], "max_attempts": 3, "dead_letter": ""}
    members = Members(tmp_path, max_in_flight=rng.choice((1, 3, 100)), key_order=key_order, **settings)
    for _ in range(STEPS):
        act = rng.random()
        if act < 0.15:
            members.publish(rng.randint(1, 2))
        elif act < 0.4 and len(members.waiting) < 4:
            members.fetch(rng.randint(1, 3))
        elif act < 0.8 and members.held:
            row = members.held.pop(rng.randrange(len(members.held)))
            members.settle(rng.choice(KINDS), row, rng.choice((0, 1, 1_500)))
        elif act < 0.85:
            members.call(UpdateGroup("g", paused=rng.randrange(2)))
        elif act < 0.87:
            members.call(SeekGroup("g", 0))
        else:
            members.pass_time(rng.choice((0.1, 1.0, 3.0, 6.0)))
        members.take()
        members.check()
