"""Dead letters: each is stored once, with its record, before that is finished."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count
from typing import cast

import pytest

from kit.clocks import DAY
from kit.disk.doubles import FaultyDisk
from kit.disk.memory_disk import MemoryDisk
from kit.groups.group_topics import GroupTopic, code
from quothd.groups import dead_letters
from quothd.groups.dead_letters import RETRY_S
from quothwire.protocol.group_messages import DeleteGroup, UpdateGroup
from quothwire.protocol.settlement import Settle, Settlement

Open = Callable[..., GroupTopic]


def restarted(topic: GroupTopic) -> None:
    topic.kill()
    topic.restart()


def test_a_letter_of_several_batches_has_the_values_of_all(open_groups: Open) -> None:
    topic = open_groups(max_attempts=1)
    pointers = [pointer for row in range(3) for pointer in topic.publish(b"%d.0" % row, b"%d.1" % row)]
    topic.nack(topic.fetch().rows)
    assert [one.value for one in topic.dead()] == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0", b"2.1"]
    assert topic.dead_pointers() == pointers
    assert topic.info().dead == 6


def test_a_damaged_record_becomes_a_letter_without_a_value(open_groups: Open, faulty: FaultyDisk) -> None:
    """Others of its batch, too; and the group goes on."""
    topic = open_groups(max_attempts=1)
    pointers = topic.publish(b"rotten" * 5, b"beside")
    topic.publish(b"sound")
    (data,) = (
        content.now
        for path, content in cast(MemoryDisk, faulty._below)._now.items()
        if path.parent.name == "t" and path.suffix == ".seg"
    )
    data[bytes(data).index(b"rotten")] ^= 1
    asked = topic.ask_fetch(3)
    token = asked.leases[0][0]
    topic.nack([[token, 1, pointers[0], pointers[1]]])
    assert [
        (one.value, pointer) for one, pointer in zip(topic.dead(), topic.dead_pointers(), strict=True)
    ] == [
        (b"", pointers[0]),
        (b"", pointers[1]),
    ]
    assert topic.info().pending == 1


def test_terminated_records_become_dead_letters_whatever_dies(open_groups: Open) -> None:
    """Also those whose letter had not left."""
    topic = open_groups()
    pointers = [topic.publish(value)[0] for value in (b"a", b"b", b"c")]
    ((token, *_),) = topic.fetch().rows[:1]
    topic.holds_letters = True
    topic.settle(*(Settlement(Settle.TERM, one, one, token) for one in (pointers[0], pointers[2])))
    restarted(topic)
    topic.holds_letters = False
    assert topic.fetch().values == [b"b"]
    assert sorted(topic.dead_pointers()) == [pointers[0], pointers[2]]
    assert topic.dead()[0].headers["quoth-reason"] == b"a member has rejected it"


@pytest.mark.parametrize("restarts", [1, 3])
def test_a_record_is_handed_out_no_more_often_than_allowed(open_groups: Open, restarts: int) -> None:
    """One that kills the broker with each hand-out becomes a dead letter a lease behind the last one."""
    topic = open_groups(max_attempts=restarts)
    (pointer,) = topic.publish(b"poison")
    for attempt in range(restarts):
        assert [row[1] for row in topic.fetch().rows] == [attempt + 1]
        restarted(topic)
    assert topic.fetch().rows == []
    assert topic.dead_pointers() == []
    topic.pass_time(topic.info().settings["lease"])
    assert topic.fetch().rows == []
    assert topic.dead_pointers() == [pointer]


def test_a_restart_does_not_make_dead_letters_of_records_at_work(open_groups: Open) -> None:
    """The member goes on with the last attempt, and its ack comes when the broker is there again."""
    topic = open_groups(max_attempts=1)
    topic.publish(b"a", b"b", b"c")
    rows = topic.fetch().rows
    restarted(topic)
    assert topic.fetch().rows == []
    topic.hibernate()
    (token, _, first, _) = rows[0]
    done = topic.settle(Settlement(Settle.ACK, first, first + 1, token))
    assert (done.records, done.late) == (2, 2)
    topic.pass_time(topic.info().settings["lease"])
    topic.fetch()
    assert topic.dead_pointers() == [first + 2]


def test_a_lower_limit_of_attempts_holds_for_records_that_wait(open_groups: Open) -> None:
    topic = open_groups()
    (pointer,) = topic.publish(b"a")
    for _ in range(3):
        topic.nack(topic.fetch().rows)
    topic.call(UpdateGroup("g", {"max_attempts": 3}))
    assert topic.dead_pointers() == [pointer]
    assert topic.fetch().rows == []


STEPS = ["before it leaves", "on its way", "stored", "finished"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_letter_is_stored_once_wherever_the_broker_dies(open_groups: Open, step: str, times: int) -> None:
    """Time and again in between: the number of the letter is its sequence in the dead-letter topic."""
    topic = open_groups(max_attempts=2)
    pointers = [*topic.publish(b"a", b"b")]
    topic.nack(topic.fetch().rows)
    rows = topic.fetch(1).rows + topic.fetch(1).rows
    topic.holds_letters = True
    topic.nack(rows)
    for _ in range(times):
        if step != "before it leaves":
            topic.fetch()
            letter = topic.take_letter()
            if letter is not None and step in ("stored", "finished"):
                done = topic.store_letter(letter)
                if step == "finished":
                    topic.finish_letter(done)
        restarted(topic)
    topic.holds_letters = False
    topic.pass_time(topic.info().settings["lease"])
    assert topic.fetch().rows == []
    assert sorted(topic.dead_pointers()) == pointers
    assert (topic.info().lag, topic.info().pending) == (0, 0)


def test_a_letter_of_an_earlier_broker_is_stored_once_through_an_upgrade(
    open_groups: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored under an id that clients may use, while its record was not finished."""
    topic = open_groups(max_attempts=1)
    pointers = [*topic.publish(b"a", b"b")]
    rows = topic.fetch(1).rows + topic.fetch(1).rows
    topic.holds_letters = True
    with monkeypatch.context() as earlier:
        earlier.setattr(dead_letters, "NUMBERS_FROM", 0)
        topic.nack(rows[:1])
        letter = topic.take_letter()
        assert letter is not None
        topic.store_letter(letter)
        restarted(topic)
    topic.holds_letters = False
    topic.fetch()
    assert (topic.dead_pointers(), topic.info().dead) == (pointers[:1], 1)
    topic.pass_time(topic.info().settings["lease"])
    topic.fetch()
    assert (topic.dead_pointers(), topic.info().dead) == (pointers, 2)


def test_letters_that_are_refused_are_sent_again_in_time_and_not_with_every_request(
    open_groups: Open,
) -> None:
    topic = open_groups(max_attempts=1)
    (pointer,) = topic.publish(b"a")
    topic.refuses = "busy"
    topic.nack(topic.fetch().rows)
    assert "refused" in topic.info().problem
    topic.holds_letters = True
    for _ in range(3):
        topic.fetch()
    assert topic.take_letter() is None
    topic.refuses, topic.holds_letters = "", False
    topic.pass_time(RETRY_S)
    assert topic.dead_pointers() == [pointer]
    assert topic.info().problem == ""
    assert not topic.topic.topic.groups.is_at_work


def test_a_letter_that_may_be_stored_is_no_more_acknowledged(open_groups: Open) -> None:
    """A part of it would stay without a letter, for the number is that of the other part."""
    topic = open_groups(max_attempts=1)
    pointers = topic.publish(*b"a b c d e".split())
    rows = topic.fetch().rows
    topic.refuses = "busy"
    topic.nack(rows)
    settled = topic.settle(Settlement(Settle.ACK, pointers[2], pointers[2], rows[0][0]))
    assert settled.records == 0
    topic.settle(Settlement(Settle.NACK, pointers[1], pointers[3], rows[0][0], 1))
    topic.refuses = ""
    topic.pass_time(RETRY_S)
    assert topic.dead_pointers() == [*pointers]
    assert topic.info().dead == 5


def test_an_ack_before_the_letter_leaves_counts(open_groups: Open) -> None:
    topic = open_groups(max_attempts=1)
    for value in (b"a", b"b"):
        topic.publish(value)
    found = topic.fetch(1).rows + topic.fetch(1).rows
    topic.holds_letters = True
    topic.nack(found)
    assert topic.ack(found).records == 1, "the letter of the other one has left"
    topic.holds_letters = False
    topic.deliver()
    assert [one.value for one in topic.dead()] == [b"a"]
    assert topic.info().lag == 0


def test_numbers_of_letters_do_not_come_again(open_groups: Open, faulty: FaultyDisk) -> None:
    """Neither after damage in the log of the groups, nor in a group that is made again.

    The dead-letter topic would take the letter of another record for one that it has.
    """
    topic = open_groups(max_attempts=1)
    values = (b"%d" % number for number in count())

    def die() -> int:
        topic.clock.step(10)
        (pointer,) = topic.publish(next(values))
        topic.nack(topic.fetch().rows)
        return pointer

    expected = [die()]
    topic.holds_letters = True
    expected.append(die())
    letter = topic.take_letter()
    assert letter is not None
    topic.store_letter(letter)
    topic.kill()
    for path, content in cast(MemoryDisk, faulty._below)._now.items():
        if path.parent.name == "groups" and path.suffix == ".seg":
            content.now[-40] ^= 1  # in the event that tells the number
    topic.restart()
    topic.holds_letters = False
    expected.append(die())
    assert {*topic.dead_pointers()} >= {*expected}
    topic.call(DeleteGroup("g"))
    restarted(topic)
    topic.make_group(max_attempts=1)
    topic.fetch()
    expected.append(die())
    assert {*topic.dead_pointers()} >= {*expected}


def test_strict_order_holds_after_a_restart_with_a_dead_letter_on_its_way(open_groups: Open) -> None:
    topic = open_groups(max_in_flight=1, max_attempts=1)
    topic.publish(b"a", b"b")
    topic.refuses = "busy"
    topic.nack(topic.fetch().rows)
    assert topic.fetch().rows == []
    restarted(topic)
    assert topic.fetch().rows == []
    topic.refuses = ""
    topic.pass_time(RETRY_S)
    assert topic.fetch().values == [b"b"]


def test_records_that_are_gone_before_their_letter_is_written_are_counted_as_gone(open_groups: Open) -> None:
    """Not as the microseconds between them."""
    topic = open_groups(max_attempts=1)
    topic.publish(b"a")
    topic.clock.step(DAY)
    last = topic.publish(b"b")[0]
    topic.refuses = "busy"
    topic.nack(topic.fetch().rows)
    restarted(topic)
    topic.trim(last + 1)
    topic.fetch()
    topic.pass_time(RETRY_S)
    info = topic.info()
    assert (info.gone, info.dead, info.lag, info.pending) == (0, 0, 0, 0), (
        "after a restart their number is unknown"
    )


def test_a_full_disk_delays_a_letter_and_no_request_of_a_member(
    open_groups: Open, faulty: FaultyDisk
) -> None:
    topic = open_groups(max_attempts=1)
    pointers = topic.publish(b"a", b"b")
    rows = topic.fetch(1).rows
    faulty.fail("write", 1, errno.ENOSPC)
    assert topic.nack(rows).lost == []
    assert topic.fetch(1).values == [b"b"]
    assert code(topic.info) == ""
    assert "No space" in topic.info().problem
    faulty.heal()
    topic.pass_time(RETRY_S)
    assert topic.dead_pointers() == [pointers[0]]
    assert topic.info().problem == ""


def test_a_letter_survives_a_power_cut_before_its_record_is_finished(open_groups: Open) -> None:
    topic = open_groups(max_attempts=1)
    topic.publish(b"a")
    topic.nack(topic.fetch().rows)
    target = topic._dead_letter_topic("t.g.dead")
    assert target.topic._log.unsynced_bytes == 0


def test_a_group_without_dead_letters_finishes_the_records(open_groups: Open) -> None:
    topic = open_groups(max_attempts=1, dead_letter="")
    topic.publish(b"a")
    topic.publish(b"b")
    topic.nack(topic.fetch().rows)
    restarted(topic)
    assert (topic.info().dead, topic.info().lag) == (2, 0)


def events_of(topic: GroupTopic) -> int:
    """The number of the events in the log of the groups."""
    group_log = topic.topic.topic.groups._store._group_log
    assert group_log is not None
    return group_log.log.end_ordinal


def test_many_records_without_a_dead_letter_are_finished_together(open_groups: Open) -> None:
    """An event in the log, and a line of the broker's log, for each would hold up the topic for a second."""
    topic = open_groups(dead_letter="", max_in_flight=100)
    pointers = topic.publish(*[b"x"] * 100)
    token = topic.fetch().rows[0][0]
    before = events_of(topic)
    topic.settle(*(Settlement(Settle.TERM, one, one, token) for one in pointers[::2]))
    assert (topic.info().dead, topic.info().lag) == (50, 50)
    assert events_of(topic) - before == 50 + 2
    restarted(topic)
    assert (topic.info().dead, topic.info().lag) == (50, 50)


def test_many_records_that_are_gone_before_their_letters_are_finished_together(open_groups: Open) -> None:
    topic = open_groups(max_in_flight=100)
    pointers = topic.publish(*[b"x"] * 100)
    token = topic.fetch().rows[0][0]
    topic.refuses = "busy"
    topic.settle(*(Settlement(Settle.TERM, one, one, token) for one in pointers[:60:2]))
    topic.trim(pointers[-1] + 1)
    topic.publish(b"y")
    topic.refuses = ""
    before = events_of(topic)
    topic.pass_time(RETRY_S)
    assert (topic.info().gone, topic.info().dead, topic.info().pending) == (30, 0, 70)
    assert events_of(topic) - before == 1
