"""Leases of the fast protocol: what a fetch and a settlement say of them, request by request."""

from __future__ import annotations

from typing import Any

from kit.broker.peers import FastPeer
from kit.deadlines import eventually
from quothwire.protocol.group_messages import (
    DescribeGroup,
    GroupFetch,
    GroupFetched,
    GroupSettle,
    GroupSettled,
    ListPending,
    OpenGroup,
)
from quothwire.protocol.messages import RollTopic, TrimTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

WAIT_MS = 20_000
AT_ONCE = {"backoff": [0.0]}


def settle(fast: FastPeer, topic: str, *rows: Settlement, **named: Any) -> GroupSettled:
    reply = fast.call(GroupSettle("g", len(rows), **named), topic, encode_settlements(rows))
    assert isinstance(reply, GroupSettled)
    return reply


def fetch(fast: FastPeer, topic: str, **named: int) -> GroupFetched:
    reply = fast.call(GroupFetch("g", "m", **named), topic)
    assert isinstance(reply, GroupFetched)
    return reply


def milliseconds(fast: FastPeer, topic: str) -> list[int]:
    """The time that is left of each pending range."""
    return [row[3] for row in fast.call(ListPending("g"), topic).ranges]


def test_an_extension_of_no_time_is_one_by_the_lease_of_the_group(fast: FastPeer, topic: str) -> None:
    fast.call(OpenGroup("g", settings={"lease": 600.0}), topic)
    first = fast.publish(topic, [b"x", b"y"]).first
    found = fetch(fast, topic, lease_ms=60_000)
    ((token, *_),) = found.leases
    assert milliseconds(fast, topic)[0] <= 60_000
    settle(fast, topic, Settlement(Settle.EXTEND, first, first, token, 0))
    one, other = milliseconds(fast, topic)
    assert other <= 60_000 < 590_000 < one <= 600_000


def test_a_row_is_lost_if_nothing_of_it_is_under_the_lease(fast: FastPeer, topic: str) -> None:
    fast.call(OpenGroup("g", settings=AT_ONCE), topic)
    first = fast.publish(topic, [b"%d" % number for number in range(6)]).first
    ((token, *_),) = fetch(fast, topic).leases
    assert settle(fast, topic, Settlement(Settle.NACK, first, first + 1, token)).lost == []
    rows = [
        Settlement(Settle.TERM, first, first + 1, token),
        Settlement(Settle.EXTEND, first + 2, first + 2, token + 1, 1_000),
        Settlement(Settle.NACK, first + 3, first + 3, token),
    ]
    assert settle(fast, topic, *rows).lost == [[first, first + 1], [first + 2, first + 2]]
    rows = [Settlement(Settle.ACK, first, first, token), Settlement(Settle.NACK, first + 4, first + 4, token)]
    reply = settle(fast, topic, *rows, generation=2)
    assert (reply.records, reply.lost) == (0, [[first, first], [first + 4, first + 4]])
    reply = settle(fast, topic, *rows)
    assert (reply.records, reply.late, reply.lost) == (1, 1, [])


def test_what_is_gone_is_told_in_the_next_reply_also_after_a_wait(fast: FastPeer, topic: str) -> None:
    fast.call(OpenGroup("g", settings=AT_ONCE), topic)
    last = fast.publish(topic, [b"x", b"y"]).last
    found = fetch(fast, topic)
    fast.call(RollTopic(), topic)
    fast.call(TrimTopic(last + 1), topic)
    ((token, _, low, high),) = found.leases
    settle(fast, topic, Settlement(Settle.NACK, low, high, token, 1))
    waiting = fast.send(GroupFetch("g", "m", wait_ms=WAIT_MS), topic)
    eventually(lambda: fast.status().waits == 1, "it waits")
    fast.publish(topic, [b"z"])
    reply = fast.answer_to(waiting).reply
    assert isinstance(reply, GroupFetched)
    assert (reply.gone, len(reply.leases)) == (2, 1)
    assert fetch(fast, topic).gone == 0


def test_an_expired_lease_is_not_shown_any_more_before_the_next_fetch(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x"])
    fast.call(OpenGroup("g", settings={"lease": 0.02, "backoff": [60.0]}), topic)
    assert fast.call(GroupFetch("g", "m"), topic).leases
    eventually(lambda: not fast.call(DescribeGroup("g"), topic).in_flight, "the lease expires")
    pending = fast.call(ListPending("g"), topic)
    assert pending.members == [""]
    assert [row[4] for row in pending.ranges] == [0]
