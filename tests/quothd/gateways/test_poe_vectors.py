"""Clients of Poe get the bytes that Poe sent, but for the differences on purpose, which the file names."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.gateways.poe import PoePeer, poe_url
from kit.gateways.poe_vectors import CASES, FILE, PoePlayer


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """Divide bytes at random."""
    at = sorted(rng.sample(range(len(data) + 1), k=min(len(data), rng.randint(0, 6))))
    return [data[begin:end] for begin, end in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize("way", ["whole", "byte by byte", "in random pieces", "pipelined"])
def test_every_recorded_case_gives_the_same_bytes(
    way: str, poe_broker: BrokerProcess, client: quoth.Client, clear: Callable[[], None], rng: random.Random
) -> None:
    cuts = {
        "byte by byte": lambda data: [bytes([one]) for one in data],
        "in random pieces": lambda data: pieces(data, rng),
    }

    def native(act: str) -> None:
        if act == "no topics":
            assert client.topics() == []
        else:
            client.roll(act.removeprefix("roll "))

    for case in CASES:
        clear()
        cut = cuts.get(way, lambda data: [data] if data else [])
        PoePlayer(poe_url(poe_broker), native, cut).play(case, pipelined=way == "pipelined")


def test_the_vectors_have_every_recorded_case_and_a_reason_for_each_difference() -> None:
    text = FILE.read_text("utf-8")
    found = {*re.findall(r"\bB\d+\b", text)}
    found |= {f"B{number}" for number in range(1, 6)}  # "B1 to B5"
    assert found >= {f"B{number}" for number in (*range(1, 12), *range(20, 35))}
    steps = [step for case in CASES for step in (case, *case["steps"])]
    assert all("difference" in step for step in steps if "poe" in step)
    assert json.loads(text)["about"]


def test_answers_come_in_the_order_of_the_requests_up_to_a_wrong_one(
    poe: PoePeer, client: quoth.Client
) -> None:
    """Nothing behind the wrong one is executed."""
    put = bytes.fromhex("0000000d 0002 00000002 6f6f 00000001 61")
    poe.send(20 * put + bytes.fromhex("00000002 0004") + 20_000 * put)
    pointers = [poe.stored() for _ in range(20)]
    assert pointers == sorted({*pointers})
    assert poe.socket.recv(1) == b"", "the end, and no reset, which could overtake answers"
    assert len(client.read("oo")) == 20


def test_a_client_that_ends_its_side_gets_the_answers_to_what_it_sent(
    poe: PoePeer, client: quoth.Client
) -> None:
    poe.send(bytes.fromhex("0000000d 0002 00000002 656e 00000001 61") * 3)
    poe.end()
    pointers = [poe.stored() for _ in range(3)]
    assert poe.is_closed()
    assert [one.pointer for one in client.read("en")] == pointers
