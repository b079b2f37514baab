"""A cursor above the newest record, by a mistake or since a topic was restored: told once, and at once."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from quoth import Client, Gap
from quothwire.pointer import POINTER_MAX

QUICK_S = 20.0
"""Two thirds of what a broker keeps a fetch for that finds nothing."""


@pytest.fixture
def last(client: Client, topic: str) -> int:
    """The newest pointer of a topic with three records."""
    return client.publish(topic, [b"a", b"b", b"c"]).last


def ahead(topic: str, newest: int, cursor: int, ordinal: int = 3) -> Gap:
    """The gap that is reported."""
    return Gap(topic, newest, cursor + 1, 0, "ahead", ordinal)


def listen(client: Client, topic: str, how: str, after: int, gaps: list[Gap]) -> None:
    """Begin to read in one of several ways, as far as it goes without a record."""
    if how == "read":
        assert len(client.read(topic, after=after, on_gap=gaps.append)) == 0
    elif how == "batches":
        assert list(client.batches(topic, after=after, on_gap=gaps.append)) == []
    else:
        with client.read_many(topic, after=after, ordered=True, on_gap=gaps.append) as reading:
            assert list(reading) == []


def test_a_cursor_above_the_newest_record_is_reported(client: Client, topic: str, last: int) -> None:
    for how in ("read", "batches", "read_many"):
        gaps: list[Gap] = []
        listen(client, topic, how, last, gaps)
        assert gaps == []
        listen(client, topic, how, last + 7, gaps)
        assert gaps == [ahead(topic, last, last + 7)], how


class Stop(Exception):
    """Raised by an application that wants no record behind such a cursor."""


@pytest.mark.timeout(QUICK_S)
def test_a_follower_gets_the_gap_before_it_waits(client: Client, topic: str, last: int) -> None:
    gaps: list[Gap] = []

    def stop(gap: Gap) -> None:
        gaps.append(gap)
        raise Stop

    followers: list[Any] = [
        client.tail(topic, after=POINTER_MAX, on_gap=stop),
        client.tail_many(topic, after=POINTER_MAX, on_gap=stop),
        client.tail_many(topic, after=POINTER_MAX, ordered=True, on_gap=stop),
    ]
    for follower in followers:
        with closing(follower), pytest.raises(Stop):
            next(follower)
    assert gaps == [ahead(topic, last, POINTER_MAX)] * 3
