"""Members of groups that claim what is not theirs, and names that are none."""

from __future__ import annotations

from dataclasses import asdict

import msgpack
import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, refused
from kit.broker.requests import example
from kit.disk.logs import made_since
from kit.forged import header
from kit.machine.processes import listing
from quothwire.protocol.group_messages import (
    LEASE_MS_MAX,
    GroupFetch,
    GroupFetched,
    GroupSettle,
    GroupSettled,
    ListPending,
    OpenGroup,
)
from quothwire.protocol.messages import REQUESTS, Operation
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

GROUPS = ("one", "other")
WITH_GROUP = [one for one in Operation if "group" in REQUESTS[one].__dataclass_fields__]
BAD_NAMES = ("", ".", "..", "a/b", "../x", "/etc/passwd", "a\0b", "a\nb", "\x1b[31m", "\u2028", "x" * 101)


def settle(fast: FastPeer, topic: str, group: str, *rows: Settlement) -> GroupSettled:
    reply = fast.call(GroupSettle(group, len(rows)), topic, encode_settlements(rows))
    assert isinstance(reply, GroupSettled)
    return reply


def leased(fast: FastPeer, topic: str) -> dict[str, list[list[int]]]:
    """Return what each group has handed out, without the times."""
    return {
        group: [[*row[:3], row[4]] for row in fast.call(ListPending(group), topic).ranges] for group in GROUPS
    }


@pytest.mark.parametrize("kind", [Settle.NACK, Settle.EXTEND, Settle.TERM, Settle.RELEASE])
def test_the_lease_of_another_group_or_none_settles_nothing(fast: FastPeer, topic: str, kind: Settle) -> None:
    """Neither with the token of the other group, nor with a guessed one, nor for records not handed out."""
    topic = f"{topic}-{kind.name}"
    first = fast.publish(topic, [b"%d" % number for number in range(10)]).first
    tokens = {}
    for group in GROUPS:
        fast.call(OpenGroup(group), topic)
        fetched = fast.call(GroupFetch(group, "m", records_max=2), topic)
        assert isinstance(fetched, GroupFetched)
        ((tokens[group], *_),) = fetched.leases
    before = leased(fast, topic)
    wrong = [
        Settlement(kind, first, first + 1, tokens["other"] + 1),
        Settlement(kind, first, first + 1, 2**64 - 1),
        Settlement(kind, first + 5, first + 6, tokens["one"]),
        Settlement(kind, first + 10**6, first + 10**9, tokens["one"]),
    ]
    if tokens["one"] != tokens["other"]:
        wrong.append(Settlement(kind, first, first + 1, tokens["other"]))
    for row in wrong:
        settled = settle(fast, topic, "one", row)
        assert (settled.records, settled.lost) == (0, [[row.first, row.last]]), row
        assert leased(fast, topic) == before


def test_an_ack_counts_once_and_for_its_group_only(fast: FastPeer, topic: str) -> None:
    first = fast.publish(topic, [b"x"]).first
    for group in GROUPS:
        fast.call(OpenGroup(group), topic)
        fast.call(GroupFetch(group, "m"), topic)
    row = Settlement(Settle.ACK, first, first)
    assert [settle(fast, topic, "one", row).records for _ in range(3)] == [1, 0, 0]
    assert [len(rows) for rows in leased(fast, topic).values()] == [0, 1]


def test_a_lease_is_no_longer_than_the_limit_however_often_it_is_extended(fast: FastPeer, topic: str) -> None:
    """An extension counts from now on: extensions do not add up."""
    first = fast.publish(topic, [b"x"]).first
    fast.call(OpenGroup("one"), topic)
    fetched = fast.call(GroupFetch("one", "m", lease_ms=LEASE_MS_MAX), topic)
    ((token, *_),) = fetched.leases
    for _ in range(3):
        settle(fast, topic, "one", Settlement(Settle.EXTEND, first, first, token, LEASE_MS_MAX))
        ((_, _, _, left, _),) = fast.call(ListPending("one"), topic).ranges
        assert left <= LEASE_MS_MAX
    for milliseconds in (LEASE_MS_MAX + 1, 2**63, 2**64 - 1):
        with refused("too_large"):
            settle(fast, topic, "one", Settlement(Settle.EXTEND, first, first, token, milliseconds))


def test_a_bad_name_of_a_group_is_refused_by_every_operation_and_creates_no_file(
    fast: FastPeer, simple: SimplePeer, broker: BrokerProcess, topic: str
) -> None:
    fast.publish(topic, [b"x"])
    files = listing(broker.directory.parent)
    for name in BAD_NAMES:
        for operation in WITH_GROUP:
            arguments = {**asdict(example(operation)), "group": name}
            payload = [encode_settlements([Settlement(Settle.ACK, 1, 1)])]
            frames = [b"", header(operation), topic.encode(), msgpack.packb(arguments)]
            fast.send_frames(frames + payload * (operation is Operation.GROUP_SETTLE))
            assert code_of(fast.receive()) == "bad_group", (operation, name[:20])
        with refused("bad_group"):
            simple.call("group.fetch", topic, name)
    assert made_since(broker.directory.parent, files) == []


def test_any_name_of_a_member_is_answered(fast: FastPeer, peers: Peers, topic: str) -> None:
    """The name is shown, and never a key to anything."""
    fast.call(OpenGroup("one", settings={"backoff": [0.0]}), topic)
    for name in ("", "../x", "a\nb", "\x1b[31m", "x" * 100_000):
        fast.publish(topic, [b"x"])
        answer = fast.request(GroupFetch("one", name), topic)
        assert code_of(answer) in ("", "bad_request", "too_large"), name[:20]
