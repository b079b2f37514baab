"""Announcements: a topic's name and its newest pointer in one frame."""

from __future__ import annotations

import random

import pytest

from kit.text.wording import code_of
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import announcement

REFUSED = {
    "empty": (b"", "bad_request"),
    "two separators": (b"orders\0\x005", "bad_request"),
    "plus": (b"orders\0+5", "bad_request"),
    "space": (b"orders\0 5", "bad_request"),
    "fraction": (b"orders\x005.0", "bad_request"),
    "underscore": (b"orders\x001_0", "bad_request"),
    "hexadecimal": (b"orders\x000x5", "bad_request"),
    "Arabic digit": ("orders\0\u0665".encode(), "bad_request"),
    "a million digits": (b"orders\0" + b"1" * 10**6, "bad_request"),
    "slash": (b"a/b\x005", "bad_topic"),
    "name too long": (b"x" * 201 + b"\x005", "bad_topic"),
    "a million letters": (b"x" * 10**6 + b"\x005", "bad_topic"),
    "17 nines": (b"orders\0" + b"9" * 17, "bad_pointer"),
}


def test_announcement_is_read_as_it_was_written(rng: random.Random) -> None:
    for topic in ("a", "orders", "é" * 100, "引述", "a b", "5"):
        for newest in (0, 1, POINTER_MAX, *(rng.randrange(2 ** rng.randint(1, 56)) for _ in range(100))):
            assert announcement.decode(announcement.encode(topic, newest)) == (topic, newest)


@pytest.mark.parametrize(("frame", "code"), REFUSED.values(), ids=REFUSED)
def test_frame_that_is_no_announcement_is_refused(frame: bytes, code: str) -> None:
    assert code_of(announcement.decode, frame) == code


def test_subscription_matches_its_topic_and_no_other() -> None:
    subscribed = announcement.subscription("orders")
    assert announcement.encode("orders", 5).startswith(subscribed)
    for other in ("order", "orders2", "orders 5", "ordersé", "rders", "Orders"):
        assert not announcement.encode(other, 5).startswith(subscribed)
