"""Dead letters on a real broker, with clients that may publish to their topic and try to block them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, code_of
from kit.deadlines import eventually
from kit.disk.logs import encoded
from quothd.requests.dead_letter import NUMBERS_FROM, producer_of_letter
from quothwire.protocol.group_messages import DescribeGroup, GroupFetch, GroupSettle, OpenGroup
from quothwire.protocol.messages import Publish
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

FILE = """
[clients.alice]
key = "{alice}"
publish = ["*"]
read = ["*"]
group = ["*"]
[clients.mallory]
key = "{mallory}"
publish = ["jobs.g.dead"]
"""
DEAD = "jobs.g.dead"
HIGHEST = 2**64 - 1


def reject(peer: FastPeer) -> None:
    """Reject the next record of the group."""
    (lease,) = peer.call(GroupFetch("g", records_max=1), "jobs").leases
    token, _, first, last = lease
    rows = encode_settlements([Settlement(Settle.TERM, first, last, token)])
    peer.call(GroupSettle("g", 1), "jobs", rows)


def letters_are_stored_against(good: FastPeer, bad: FastPeer) -> None:
    """Block the ids of letters before the first one and between two; check that both are stored."""
    log_id = good.publish("jobs", [b"a"]).log
    good.publish("jobs", [b"b"])
    good.call(OpenGroup("g", settings={"max_attempts": 1}), "jobs")
    for value in (b"a", b"b"):
        codes = {}
        for number in (1, NUMBERS_FROM):
            producer = producer_of_letter(log_id, 1, number)
            raw = encoded([b"bad"], producer=producer, sequence=HIGHEST, sparse=True, start=True)
            codes[number] = code_of(bad.request(Publish(), DEAD, raw))
        assert codes[NUMBERS_FROM] == "bad_batch"
        reject(good)
        eventually(lambda: value in good.values(DEAD), "the letter is stored")  # noqa: B023
    eventually(lambda: good.call(DescribeGroup("g"), "jobs").dead == 2, "the group has finished both")
    assert [value for value in good.values(DEAD) if value != b"bad"] == [b"a", b"b"]


def test_no_other_client_can_block_the_letters_of_a_group(known: Callable[..., Any]) -> None:
    """By a publish under their producer id with a high sequence, which would let them look like old ones."""
    broker = known(FILE)
    letters_are_stored_against(broker.fast("alice"), broker.fast("mallory"))


def test_no_client_without_a_key_can_block_the_letters_of_a_group(broker: BrokerProcess, peers: Any) -> None:
    letters_are_stored_against(peers.fast(broker), peers.fast(broker))


@pytest.mark.parametrize("number", [1, 255, 2**31])
def test_the_ids_of_letters_are_those_that_no_client_may_use(number: int) -> None:
    for log_id in (0, 1, 2**64 - 1):
        raw = encoded([b"x"], producer=producer_of_letter(log_id, number, NUMBERS_FROM), sequence=1)
        assert raw[37:40] == bytes.fromhex("1eadde")
