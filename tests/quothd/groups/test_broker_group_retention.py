"""Retention of a topic whose groups say which records are not needed any more."""

from __future__ import annotations

from kit.broker.peers import FastPeer
from kit.deadlines import eventually
from quothwire.protocol.group_messages import DeleteGroup, GroupFetch, GroupSettle, OpenGroup
from quothwire.protocol.messages import CreateTopic, UpdateTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

SETTINGS = {"count_limit": 1, "retention": "until_acked"}


def _ack(fast: FastPeer, topic: str, group: str, records: int) -> None:
    """Fetch records of a group and acknowledge them."""
    found = fast.call(GroupFetch(group, records_max=records), topic)
    rows = [Settlement(Settle.ACK, first, last, token) for token, _, first, last in found.leases]
    assert sum(last - first + 1 for _, first, last, *_ in rows) == records
    fast.call(GroupSettle(group, len(rows)), topic, encode_settlements(rows))


def test_what_all_groups_have_finished_is_removed_and_nothing_else(fast: FastPeer, topic: str) -> None:
    fast.call(CreateTopic(SETTINGS), topic)
    for group in ("quick", "slow"):
        fast.call(OpenGroup(group), topic)
    for _ in range(6):
        fast.publish(topic, [b"x"])
    _ack(fast, topic, "quick", 1)
    _ack(fast, topic, "slow", 1)
    eventually(lambda: fast.describe(topic).count == 5, "the first record goes")
    for _ in range(4):
        _ack(fast, topic, "quick", 1)
    _ack(fast, topic, "slow", 1)
    eventually(lambda: fast.describe(topic).count == 4, "the second one goes")
    fast.call(DeleteGroup("slow"), topic)
    eventually(lambda: fast.describe(topic).count == 1, "all but the active segment go")
    assert fast.call(GroupFetch("quick"), topic).gone == 0


def test_a_limit_holds_for_what_is_not_finished(fast: FastPeer, topic: str) -> None:
    fast.call(CreateTopic({**SETTINGS, "max_age": 0.05}), topic)
    fast.call(OpenGroup("g"), topic)
    for _ in range(3):
        fast.publish(topic, [b"x"])
    eventually(lambda: fast.describe(topic).count == 0, "the limit of age is reached")
    fast.call(UpdateTopic({"max_age": 600.0}), topic)
    fast.publish(topic, [b"y"])
    found = fast.call(GroupFetch("g"), topic)
    assert (found.gone, len(found.leases)) == (3, 1), "what was removed is counted"
