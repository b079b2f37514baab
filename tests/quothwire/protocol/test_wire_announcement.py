"""Announcements: a topic's name and its newest pointer in one frame."""

from __future__ import annotations

import random

import pytest

from quothwire.errors import RequestError
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import announcement

REFUSED = {
    "empty": (b"", "bad_request"),
    "name alone": (b"orders", "bad_request"),
    "no pointer": (b"orders\0", "bad_request"),
    "two separators": (b"orders\0\x005", "bad_request"),
    "sign": (b"orders\0-5", "bad_request"),
    "plus": (b"orders\0+5", "bad_request"),
    "space": (b"orders\0 5", "bad_request"),
    "fraction": (b"orders\x005.0", "bad_request"),
    "underscore": (b"orders\x001_0", "bad_request"),
    "hexadecimal": (b"orders\x000x5", "bad_request"),
    "Arabic digit": ("orders\0\u0665".encode(), "bad_request"),
    "18 digits": (b"orders\0" + b"1" * 18, "bad_request"),
    "a million digits": (b"orders\0" + b"1" * 10**6, "bad_request"),
    "no name": (b"\x005", "bad_topic"),
    "no UTF-8": (b"\xff\x005", "bad_topic"),
    "slash": (b"a/b\x005", "bad_topic"),
    "name too long": (b"x" * 201 + b"\x005", "bad_topic"),
    "a million letters": (b"x" * 10**6 + b"\x005", "bad_topic"),
    "above the last pointer": (b"orders\0%d" % (POINTER_MAX + 1), "bad_pointer"),
    "17 nines": (b"orders\0" + b"9" * 17, "bad_pointer"),
}


@pytest.mark.parametrize("topic", ["a", "orders", "é" * 100, "引述", "a b", "5"])
@pytest.mark.parametrize("newest", [0, 1, 1_767_323_045_000_001, POINTER_MAX])
def test_announcement_is_read_as_it_was_written(topic: str, newest: int) -> None:
    assert announcement.decode(announcement.encode(topic, newest)) == (topic, newest)


def test_any_pointer_arrives(rng: random.Random, seed: int) -> None:
    for _ in range(500):
        newest = rng.randrange(2 ** rng.randint(1, 56))
        frame = announcement.encode("orders", newest)
        assert announcement.decode(frame) == ("orders", newest), f"QUOTH_SEED={seed}: {frame!r}"


@pytest.mark.parametrize(("frame", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_announcement_is_refused(frame: bytes, code: str) -> None:
    with pytest.raises(RequestError) as refusal:
        announcement.decode(frame)
    assert refusal.value.code == code


def test_subscription_gets_its_topic_and_no_other() -> None:
    subscribed = announcement.subscription("orders")
    assert announcement.encode("orders", 5).startswith(subscribed)
    for other in ("order", "orders2", "orders 5", "ordersé", "rders", "Orders"):
        assert not announcement.encode(other, 5).startswith(subscribed)
