"""Fetches of groups that read from a disk, meet what is gone, or meet each other."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from kit.broker.open_topic import pending
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import encoded, put
from kit.groups.group_topics import GroupTopic, code
from quothd.requests.pending_request import PendingRequest
from quothlog.groups import selection
from quothwire.protocol.group_messages import DeleteGroup, GroupFetch, GroupSettle, SeekGroup, UpdateGroup
from quothwire.protocol.messages import Request, RollTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

Open = Callable[..., GroupTopic]


def filled(topic: GroupTopic, segments: int = 3) -> list[int]:
    """Two records in each of some sealed segments, which are not in memory any more; their pointers."""
    pointers: list[int] = []
    for row in range(segments):
        pointers += topic.publish(b"%d.0" % row, b"%d.1" % row)
        topic.call(RollTopic())
    topic.stop()
    topic.restart()
    return pointers


def reading(topic: GroupTopic, records: int = 2, wait_ms: int = 0) -> PendingRequest:
    """A fetch for which a reader thread has to read."""
    asked = topic.ask(GroupFetch("g", "m", records, wait_ms=wait_ms))
    assert not topic.topic.services.is_idle
    return asked


def meanwhile(topic: GroupTopic, request: Request, payload: bytes | None = None) -> None:
    """Let the topic handle a request before the reader thread is done."""
    topic.topic.handle(pending(request, payload))


def state_of(topic: GroupTopic) -> tuple[object, ...]:
    """The state that a group shows of its records."""
    info = topic.info()
    counts = info.redelivered, info.gone, info.dead
    return (info.after, info.cursor, info.lag, info.pending, info.in_flight, *counts, topic.pending())


def test_records_that_are_finished_during_a_read_are_not_handed_out(open_groups: Open) -> None:
    """A late ack of what another member is about to get. Both free and new records may be finished so."""
    topic = open_groups()
    pointers = filled(topic)
    topic.fetch(4)
    topic.ack([[0, 0, pointers[3], pointers[3]]])
    topic.kill()
    topic.restart()
    for acked in (0, 5):
        asked = reading(topic, 10)
        row = Settlement(Settle.ACK, pointers[acked], pointers[acked])
        meanwhile(topic, GroupSettle("g", 1), encode_settlements([row]))
        topic.deliver()
        assert pointers[acked] not in topic.handed_out(asked).pointers
        topic.kill()
        topic.restart()
    left = topic.fetch().pointers
    while more := topic.fetch().pointers:
        left += more
    assert left == [pointers[1], pointers[2], pointers[4]]


def test_a_group_that_is_moved_during_a_read_hands_out_from_its_new_place(open_groups: Open) -> None:
    """A fetch that waits does not wait for something newer than what is there."""
    topic = open_groups()
    pointers = filled(topic)
    asked = reading(topic, wait_ms=10_000)
    meanwhile(topic, SeekGroup("g", pointers[1]))
    topic.deliver()
    found = topic.handed_out(asked)
    assert found.pointers == pointers[2:4]
    assert found.reply.generation == 2


def test_a_group_that_is_paused_during_a_read_hands_nothing_out(open_groups: Open) -> None:
    topic = open_groups()
    filled(topic)
    asked = reading(topic)
    meanwhile(topic, UpdateGroup("g", paused=1))
    topic.deliver()
    assert topic.handed_out(asked).rows == []


def test_a_group_that_is_deleted_during_a_read_refuses_all_its_fetches(open_groups: Open) -> None:
    topic = open_groups()
    filled(topic)
    asked = [reading(topic), topic.ask(GroupFetch("g", "n", 2))]
    meanwhile(topic, DeleteGroup("g"))
    topic.deliver()
    assert topic.topic.codes(asked) == ["unknown_group"] * 2


def test_fetches_that_wait_for_a_read_follow_it_in_their_order(open_groups: Open) -> None:
    topic = open_groups()
    pointers = filled(topic)
    asked = [reading(topic), *(topic.ask(GroupFetch("g", "n", 2)) for _ in range(3))]
    topic.deliver()
    found = [topic.handed_out(one).pointers for one in asked]
    assert found == [pointers[:2], pointers[2:4], pointers[4:], []]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_read_that_fails_refuses_its_fetch_alone(
    open_groups: Open, faulty: FaultyDisk, failing: int
) -> None:
    """Fetches that wait for it are executed, with any outcome; the topic goes on."""
    topic = open_groups()
    pointers = filled(topic)
    asked = [reading(topic), topic.ask(GroupFetch("g", "n", 2))]
    faulty.fail("read", failing, lasting=True)
    topic.deliver()
    assert topic.topic.codes(asked)[-1] == "storage_failed"
    faulty.heal()
    found = [topic.fetch(6).pointers for _ in range(3)]
    granted = [topic.handed_out(one).pointers for one in asked if not topic.topic.answers[one][0]]
    assert sorted(chain(*found, *granted)) == pointers


def test_a_record_that_is_gone_does_not_hold_up_the_others(open_groups: Open) -> None:
    """Also one that is to be handed out alone."""
    topic = open_groups(max_attempts=0)
    (first,) = topic.publish(b"a")
    for _ in range(2):
        topic.nack(topic.fetch(1).rows)
    topic.trim(first + 1)
    topic.publish(b"b")
    found = topic.fetch()
    assert (found.values, found.reply.gone) == ([b"b"], 1)
    assert topic.info().gone == 1


def test_what_is_gone_is_told_once_by_the_next_reply_with_records(open_groups: Open) -> None:
    """Not by one that has not been given, since its fetch waits."""
    topic = open_groups()
    (first,) = topic.publish(b"a")
    topic.nack(topic.fetch(1).rows)
    topic.trim(first + 1)
    asked = topic.ask(GroupFetch("g", "m", 1, wait_ms=1_000))
    assert topic.topic.codes([asked]) == ["waits"]
    topic.publish(b"b", b"c")
    assert [topic.fetch(1).reply.gone for _ in range(2)] == [1, 0]


def test_records_that_were_removed_before_the_group_was_made_are_not_gone(open_groups: Open) -> None:
    topic = open_groups()
    last = topic.publish(b"a", b"b")[-1]
    topic.trim(last + 1)
    topic.make_group("h")
    topic.publish(b"c")
    assert topic.fetch(group="h").reply.gone == 0
    assert topic.fetch().reply.gone == 2


def test_more_batches_than_one_hand_out_may_have_lose_no_record(
    open_groups: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart a span may have any number of batches."""
    monkeypatch.setattr(selection, "BATCHES_MAX", 20)
    topic = open_groups()
    count = 70
    put(topic.topic.topic._log, *(encoded([b"%d" % row]) for row in range(count)))
    while topic.fetch(10).rows:
        pass
    topic.publish(b"last")
    topic.ack(topic.fetch().rows)
    topic.kill()
    topic.restart()
    seen: list[bytes] = []
    while (found := topic.fetch(2 * count)).rows:
        seen += found.values
        topic.ack(found.rows)
    assert seen == [b"%d" % row for row in range(count)]
    topic.kill()
    topic.restart()
    assert topic.info().lag == 0


@pytest.mark.parametrize("settings", [{}, {"mode": "at_most_once"}, {"key_order": True}], ids=str)
def test_a_fetch_that_cannot_be_logged_leaves_the_group_as_it_was(
    open_groups: Open, faulty: FaultyDisk, settings: dict[str, Any]
) -> None:
    """No record is under a lease that no member has, and none counts an attempt."""
    topic = open_groups(**settings)
    topic.publish(b"a", b"b")
    if "mode" not in settings:
        topic.nack(topic.fetch(1).rows)
    topic.publish(b"c")
    before = state_of(topic)
    faulty.fail("write", 1, errno.ENOSPC)
    assert code(topic.fetch) == "disk_low"
    faulty.heal()
    assert state_of(topic) == before
    found = topic.fetch()
    assert found.values == [b"a", b"b", b"c"]
    assert found.rows[0][1] == (1 if "mode" in settings else 2)


def test_records_that_are_gone_count_once_however_often_a_fetch_is_refused(
    open_groups: Open, faulty: FaultyDisk
) -> None:
    topic = open_groups()
    last = topic.publish(b"a", b"b")[-1]
    topic.trim(last + 1)
    topic.publish(b"c")
    for _ in range(3):
        faulty.fail("write", 1, errno.ENOSPC)
        assert code(topic.fetch) == "disk_low"
    assert topic.fetch().reply.gone == 2
    assert topic.info().gone == 2


def test_leases_of_a_busy_group_that_have_ended_take_no_memory(open_groups: Open) -> None:
    """A lease of hours costs as little as one of seconds."""
    topic = open_groups(lease=3_600.0)
    for _ in range(500):
        topic.publish(b"x")
        topic.ack(topic.fetch().rows)
    assert len(topic.group()._queue._leases) < 100
