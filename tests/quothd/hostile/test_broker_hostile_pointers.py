"""Pointers that no record has: below, above and between those of a topic, and beyond all pointers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import get_args, get_type_hints

import msgpack

from kit.broker.peers import FastPeer, SimplePeer, code_of, refused
from kit.broker.requests import example
from kit.forged import header
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import REQUESTS, Operation, RollTopic, TrimTopic
from quothwire.protocol.value import Range

ABOVE = (2**56, 2**63, 2**64 - 1)
BELOW = (-2, -(2**63))


def pointers_of(operation: Operation) -> Iterator[str]:
    """Yield the fields of a request that are pointers."""
    for name, hint in get_type_hints(REQUESTS[operation], include_extras=True).items():
        if any(isinstance(part, Range) and part.high == POINTER_MAX for part in get_args(hint)):
            yield name


def code_with(fast: FastPeer, topic: str, operation: Operation, **other: int) -> str:
    """Send the example of a request with other arguments; returns the code of its error, "" for a reply."""
    arguments = {**asdict(example(operation)), **other}
    fast.send_frames([b"", header(operation), topic.encode(), msgpack.packb(arguments)])
    return code_of(fast.receive())


def test_a_pointer_out_of_range_is_refused_by_every_operation_and_changes_nothing(
    fast: FastPeer, topic: str
) -> None:
    fast.publish(topic, [b"x"])
    before = fast.describe(topic)
    tried = 0
    for operation in Operation:
        for field in pointers_of(operation):
            for value in (*ABOVE, *BELOW):
                expected = "bad_pointer" if value > 0 else "bad_request"
                assert code_with(fast, topic, operation, **{field: value}) == expected, (operation, field)
                tried += 1
    assert tried > 50
    after = fast.describe(topic)
    assert (after.log, after.first, after.last, after.count) == (before.log, before.first, before.last, 1)


def test_a_pointer_within_the_range_has_the_records_above_it(
    fast: FastPeer, simple: SimplePeer, topic: str
) -> None:
    """Removed ones are counted, and none is answered twice."""
    gone = fast.publish(topic, [b"1", b"2"]).last
    fast.call(RollTopic(), topic)
    first = fast.publish(topic, [b"3", b"4"]).first
    fast.call(TrimTopic(first), topic)
    for after in (0, 1, gone - 1, gone, first - 1):
        found = fast.fetch(topic, after)
        assert found.values == [b"3", b"4"], after
        assert found.reply.gone == (2 if after < gone - 1 else found.reply.gone)
        assert [value for _, value in simple.read(topic, after)[1]] == [b"3", b"4"]
    for after in (first + 1, first + 10**9, POINTER_MAX - 1, POINTER_MAX):
        found = fast.fetch(topic, after)
        assert (found.values, found.reply.next) == ([], after), after
        assert simple.read(topic, after) == (after, [])
    for text in ("-1", "+1", "0x1", "1e3", "72057594037927936", "9" * 400):
        with refused("bad_pointer" if text.isdecimal() else "bad_request"):
            simple.call("read", topic, text)


def test_a_trim_beyond_the_newest_record_leaves_the_clock_where_it_was(fast: FastPeer, topic: str) -> None:
    last = fast.publish(topic, [b"x"]).last
    assert fast.call(TrimTopic(POINTER_MAX), topic).records == 1
    following = fast.publish(topic, [b"y"]).first
    assert last < following < last + 60 * 10**6
    assert fast.values(topic) == [b"y"]
