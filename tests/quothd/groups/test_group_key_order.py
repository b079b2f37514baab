"""Order by key after a restart, and of keys that have many records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kit.groups.group_topics import GroupTopic
from quothd.groups import hand_out
from quothd.groups.dead_letters import RETRY_S
from quothwire import batch
from quothwire.protocol.group_messages import GroupFetch
from quothwire.protocol.messages import Publish

Open = Callable[..., GroupTopic]


def publish(topic: GroupTopic, *values: bytes) -> None:
    """Publish records in a batch, the first byte of each is its key."""
    topic.call(Publish(), batch.encode(values, [value[:1] for value in values]))


def restarted(topic: GroupTopic) -> None:
    topic.kill()
    topic.restart()


def test_the_last_attempt_of_a_record_holds_up_its_key_after_a_restart(open_groups: Open) -> None:
    """Its member may still be at work; then the record becomes a dead letter."""
    topic = open_groups(key_order=True, max_attempts=1, lease=20.0)
    publish(topic, b"a1", b"a2", b"b1")
    rows = topic.fetch(1).rows
    restarted(topic)
    assert topic.fetch().values == [b"b1"]
    assert topic.info().in_flight == 2
    topic.ack(rows)
    assert topic.info().in_flight == 1
    assert topic.fetch().values == [b"a2"]
    restarted(topic)
    assert topic.fetch().values == []
    topic.pass_time(20.0)
    topic.fetch()
    assert len(topic.dead()) == 2
    assert (topic.info().in_flight, topic.info().lag) == (0, 0)


def test_a_record_whose_letter_is_refused_holds_up_its_key_after_a_restart(open_groups: Open) -> None:
    topic = open_groups(key_order=True, max_attempts=1)
    publish(topic, b"a1", b"a2", b"b1")
    topic.refuses = "busy"
    topic.nack(topic.fetch(1).rows)
    restarted(topic)
    assert topic.fetch(1).values == [b"b1"]
    assert topic.fetch(1).values == []
    topic.refuses = ""
    topic.pass_time(RETRY_S)
    assert topic.fetch(1).values == [b"a2"]


def test_a_letter_on_its_way_since_a_restart_holds_up_its_key(open_groups: Open) -> None:
    """Also if it left before the first fetch."""
    topic = open_groups(key_order=True, max_attempts=1, lease=20.0)
    publish(topic, b"a1", b"a2")
    topic.fetch(1)
    restarted(topic)
    topic.info()
    topic.holds_letters = True
    topic.pass_time(20.0)
    assert topic.fetch().values == []
    topic.holds_letters = False
    topic.deliver()
    assert topic.fetch().values == [b"a2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_fetch_that_waits_lets_others_go_before_it_has_read_all_of_a_blocked_key(
    open_groups: Open, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """The broker tries it again at once, until it has found the records of other keys."""
    monkeypatch.setattr(hand_out, "READS_IN_VAIN_MAX", 3)
    topic = open_groups(key_order=True, max_in_flight=10_000)
    for _ in range(10):
        publish(topic, *[b"a"] * 100)
    publish(topic, b"b")
    assert topic.fetch(1).values == [b"a"]
    if restarts:
        restarted(topic)
        assert topic.fetch(1).values == [b"a"]
    tries = 0
    while True:
        asked = topic.ask(GroupFetch("g", "m", 1, wait_ms=1_000))
        if topic.topic.codes([asked]) == [""]:
            break
        assert asked.retry <= topic.topic.clock.monotonic()
        tries += 1
    assert topic.handed_out(asked).values == [b"b"]
    assert tries == 3
    assert topic.fetch(1).values == []
