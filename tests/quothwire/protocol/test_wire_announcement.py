"""Announcements: a topic's name and its newest pointer in one frame."""

from __future__ import annotations

import random

from kit.text.wording import code_of
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import announcement


def test_announcement_is_read_as_it_was_written(rng: random.Random) -> None:
    for topic in ("a", "orders", "é" * 100, "引述", "a b", "5"):
        for newest in (0, 1, POINTER_MAX, *(rng.randrange(2 ** rng.randint(1, 56)) for _ in range(100))):
            assert announcement.decode(announcement.encode(topic, newest)) == (topic, newest)


def test_frame_that_is_no_announcement_is_refused() -> None:
    newest = ("0\0005", "+5", " 5", "5.0", "1_0", "0x5", "\u0665", "1" * 10**6)
    frames = {f"orders\0{text}".encode(): "bad_request" for text in newest}
    frames |= {name + b"\0005": "bad_topic" for name in (b"a/b", b"x" * 201, b"x" * 10**6)}
    for frame, code in {b"": "bad_request", **frames, b"orders\0" + b"9" * 17: "bad_pointer"}.items():
        assert code_of(announcement.decode, frame) == code, frame[:30]


def test_subscription_matches_its_topic_and_no_other() -> None:
    subscribed = announcement.subscription("orders")
    assert announcement.encode("orders", 5).startswith(subscribed)
    for other in ("order", "orders2", "orders 5", "ordersé", "rders", "Orders"):
        assert not announcement.encode(other, 5).startswith(subscribed)
