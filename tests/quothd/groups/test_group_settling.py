"""Settlements of members: what is durable when they are answered, and what has no effect."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kit.broker.open_topic import pending
from kit.clocks import HOUR
from kit.disk.doubles import FaultyDisk
from kit.groups.group_topics import GroupTopic, code
from quothd.groups import store
from quothd.requests.events import Close, GroupReady
from quothd.requests.pending_request import PendingRequest
from quothlog.groups import group_log
from quothlog.reading.range_query import LogSurvey, RangeCount
from quothwire.protocol.group_messages import (
    CommitCursor,
    DeleteGroup,
    GroupSettle,
    OpenGroup,
    SeekGroup,
    UpdateGroup,
)
from quothwire.protocol.messages import Request
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements

Open = Callable[..., GroupTopic]


def acks(*rows: list[int]) -> tuple[GroupSettle, bytes]:
    """A request that acknowledges leases, and its payload."""
    found = [Settlement(Settle.ACK, first, last, token) for token, _, first, last in rows]
    return GroupSettle("g", len(found)), encode_settlements(found)


def leased(topic: GroupTopic) -> dict[int, list[int]]:
    """Attempts, the rest of the lease and its token, by the pointer of each record that is handed out."""
    ranges = topic.pending().ranges
    return {pointer: rest for first, last, *rest in ranges for pointer in range(first, last + 1)}


def restarted(topic: GroupTopic) -> None:
    topic.kill()
    topic.restart()


def test_an_ack_counts_for_records_that_were_handed_out_before_a_restart(open_groups: Open) -> None:
    topic = open_groups()
    pointers = topic.publish(b"a", b"b", b"c")
    (lease,) = topic.fetch(3).rows
    restarted(topic)
    settled = topic.ack([[lease[0], 1, pointers[1], pointers[1]]])
    assert (settled.records, settled.late) == (1, 1)
    restarted(topic)
    assert topic.fetch(3).values == [b"a", b"c"]


def test_a_release_does_not_count_as_an_attempt(open_groups: Open) -> None:
    """Neither at once nor after a restart: however often it happens, no record becomes a dead letter."""
    topic = open_groups(max_attempts=2, backoff=[1_000.0])
    (pointer,) = topic.publish(b"a")
    for _ in range(3):
        ((token, attempts, *_),) = topic.fetch().rows
        assert attempts == 1
        row = Settlement(Settle.RELEASE, pointer, pointer, token)
        assert topic.settle(row).lost == []
        assert topic.settle(row).lost == [[pointer, pointer]], "it is no more under the lease"
    topic.nack(topic.fetch().rows)
    topic.pass_time(1_000.0)
    for _ in range(3):
        ((token, attempts, *_),) = topic.fetch().rows
        assert attempts == 2
        topic.settle(Settlement(Settle.RELEASE, pointer, pointer, token))
        restarted(topic)
    assert topic.info().redelivered == 3
    assert topic.dead_pointers() == []


def test_an_ack_does_not_reach_what_is_not_there(open_groups: Open) -> None:
    """A member may ask for what it likes; the next records are handed out all the same."""
    topic = open_groups()
    (first,) = topic.publish(b"a")
    assert topic.ack([[0, 0, first + 1, first + 10**9]]).records == 0
    topic.publish(b"b")
    assert topic.fetch().values == [b"a", b"b"]


@pytest.mark.parametrize("compacts", [False, True])
def test_an_ack_of_a_deleted_group_has_no_effect_on_the_next_one_of_its_name(
    open_groups: Open, monkeypatch: pytest.MonkeyPatch, compacts: bool
) -> None:
    """The number of the deleted group does not come again, although its events were removed."""
    monkeypatch.setattr(group_log, "COMPACT_BYTES", 1)
    monkeypatch.setattr(group_log, "COMPACT_FACTOR", 0)
    topic = open_groups()
    topic.publish(b"a", b"b")
    fetched = topic.fetch(1)
    topic.call(DeleteGroup("g"))
    if compacts:
        topic.pass_time(topic.topic.config.check_interval)
        restarted(topic)
    topic.make_group()
    (token, _, first, last), generation = fetched.rows[0], fetched.reply.generation
    settled = topic.settle(Settlement(Settle.ACK, first, last, token), generation=generation)
    assert (settled.records, settled.lost) == (0, [[first, last]])
    assert topic.fetch().values == [b"a", b"b"]


def test_a_late_ack_counts_records_exactly_after_a_restart(open_groups: Open) -> None:
    """Pointers are times: there are many between two batches."""
    topic = open_groups()
    topic.publish(b"a", b"b")
    topic.clock.step(60_000_000)
    topic.publish(b"c")
    topic.clock.step(60_000_000)
    last = topic.publish(b"d")[0]
    rows = topic.fetch().rows
    topic.ack([[0, 0, last, last]])
    restarted(topic)
    settled = topic.ack(rows)
    assert (settled.records, settled.late) == (3, 3)


def test_late_acks_of_many_single_records_are_counted_without_a_read_for_each(
    open_groups: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for each record, as members send them that get one at a time."""
    monkeypatch.setattr(store, "UNKNOWN_COUNTED_MAX", 3)
    counted: list[int] = []
    count = LogSurvey.count

    def noted(survey: LogSurvey, after: int, until: int) -> tuple[RangeCount, int]:
        counted.append(after)
        return count(survey, after, until)

    monkeypatch.setattr(LogSurvey, "count", noted)
    topic = open_groups()
    pointers = topic.publish(*[b"x"] * 40)
    token = topic.fetch().rows[0][0]
    restarted(topic)
    topic.info()
    counted.clear()
    settled = topic.ack([[token, 1, one, one] for one in pointers[::2]])
    assert (settled.records, settled.late) == (20, 20)
    assert len(counted) <= 2 * (3 + 1)
    assert topic.info().pending == 20


def test_a_repeated_ack_waits_for_the_fsync_of_the_first_one(open_groups: Open) -> None:
    """Or its answer would promise what a power cut takes."""
    topic = open_groups(durability="synced")
    topic.publish(b"a")
    request, payload = acks(*topic.fetch().rows)
    asked = [topic.ask(request, payload) for _ in range(2)]
    assert [topic.topic.answers[one] for one in asked] == [[], []]
    topic.deliver()
    assert topic.topic.codes(asked) == ["", ""]


def test_a_group_that_is_opened_twice_is_durable_for_both(open_groups: Open) -> None:
    topic = open_groups()
    asked = [topic.ask(OpenGroup("h")) for _ in range(2)]
    assert [topic.topic.answers[one] for one in asked] == [[], []]
    topic.deliver()
    assert topic.topic.codes(asked) == ["", ""]


def test_ranges_that_a_member_has_lost_are_named(open_groups: Open) -> None:
    """Parts of a row, too, that were finished or that another member has."""
    topic = open_groups()
    first, second, third, fourth, fifth = topic.publish(*b"a b c d e".split())
    ((token, *_),) = topic.fetch().rows
    topic.ack([[0, 0, third, third]])
    for kind in (Settle.EXTEND, Settle.NACK):
        settled = topic.settle(Settlement(kind, first, fifth, token, 50_000))
        assert settled.lost == [[third, third]]
    assert topic.settle(Settlement(Settle.TERM, second, fourth, token)).lost == [[second, fourth]]


def test_a_lease_can_be_extended_until_a_week_after_its_hand_out(open_groups: Open) -> None:
    """A longer extension has no effect. The lease ends when it had to; another member gets the records."""
    topic = open_groups(backoff=[0.0])
    pointers = topic.publish(b"a", b"b")
    ((token, *_),) = topic.fetch().rows

    def extend(hours: int) -> list[list[int]]:
        rows = [Settlement(Settle.EXTEND, one, one, token, hours * 3_600_000) for one in pointers]
        return topic.settle(*rows).lost

    for _ in range(7 * 24 - 12):
        assert extend(12) == []
        topic.clock.step(HOUR)
    assert extend(12) == []
    topic.clock.step(HOUR)
    assert extend(12) == [[one, one] for one in pointers]
    assert [rest[1] for rest in leased(topic).values()] == [11 * 3_600_000] * 2
    assert extend(11) == []
    topic.clock.step(11 * HOUR - 1)
    assert topic.fetch(member="other").values == []
    topic.clock.step(1)
    ((later, attempts, *_),) = (fetched := topic.fetch(member="other")).rows
    assert (fetched.values, attempts) == ([b"a", b"b"], 2)
    assert later != token
    assert len(extend(1)) == 2
    assert topic.ack([[token, 1, pointers[0], pointers[1]]]).records == 2


@pytest.mark.parametrize("code_of_disk", ["disk_low", "storage_failed"])
def test_what_is_refused_changes_nothing(open_groups: Open, faulty: FaultyDisk, code_of_disk: str) -> None:
    """Members keep their leases, and no other one gets their records."""
    topic = open_groups()
    pointers = topic.publish(b"a", b"b", b"c")
    ((token, *_),) = topic.fetch(3).rows
    rows = [
        Settlement(kind, pointer, pointer, token)
        for kind, pointer in zip((Settle.ACK, Settle.NACK, Settle.TERM), pointers, strict=True)
    ]
    before = leased(topic)
    faulty.fail("write", 1, errno.ENOSPC if code_of_disk == "disk_low" else errno.EIO)
    assert code(topic.settle, *rows) == code_of_disk
    assert leased(topic) == before
    assert topic.fetch().rows == []
    if code_of_disk == "disk_low":
        assert topic.settle(*rows).records == 1
        assert topic.dead_pointers() == [pointers[2]]
        assert topic.fetch().values == [b"b"]
    else:
        restarted(topic)
        assert topic.fetch().values == [b"a", b"b", b"c"], "nothing was acknowledged"


CHANGES: list[Request] = [
    UpdateGroup("g", {"lease": 77.0}, 1),
    SeekGroup("g", 1),
    DeleteGroup("g"),
    OpenGroup("h"),
]


@pytest.mark.parametrize("request_", CHANGES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("written", [0, 100, 250])
def test_a_change_of_a_group_is_made_whole_or_not(
    open_groups: Open, faulty: FaultyDisk, request_: Request, written: int
) -> None:
    """Members go on with their leases if it is refused, also after a restart."""
    topic = open_groups()
    topic.publish(b"a", b"b")
    rows = topic.fetch(1).rows
    before = topic.info().settings, topic.info().paused, topic.pending()
    faulty.fail("write", 1, errno.ENOSPC, written=written)
    assert code(topic.call, request_) == "disk_low"
    assert (topic.info().settings, topic.info().paused, topic.pending()) == before
    assert topic.ack(rows).records == 1
    restarted(topic)
    assert topic.info().settings == before[0]
    assert topic.fetch().values == [b"b"]
    assert code(topic.info, "h") == "unknown_group"


def test_a_cursor_is_after_a_restart_where_it_was(open_groups: Open) -> None:
    topic = open_groups(mode="cursor")
    pointers = topic.publish(*[b"x"] * 10)
    topic.call(CommitCursor("g", pointers[4]))
    before = topic.info()
    restarted(topic)
    after = topic.info()
    assert (after.after, after.cursor, after.lag, after.pending) == (pointers[4], pointers[4], 5, 0)
    assert (before.after, before.lag) == (after.after, after.lag)


def test_a_long_reason_keeps_no_request_from_being_executed(open_groups: Open) -> None:
    """The events of its rows fit into one batch."""
    topic = open_groups(max_in_flight=ROWS_MAX)
    topic.holds_letters = True
    pointers = topic.publish(*[b"x"] * ROWS_MAX)
    token = topic.fetch(ROWS_MAX).rows[0][0]
    rows = [Settlement(Settle.TERM, one, one, token) for one in pointers]
    assert topic.settle(*rows, reason="r" * 5_000).lost == []
    restarted(topic)
    assert topic.fetch(1).rows == []
    assert (topic.info().pending, len(topic.group().spans.dying())) == (ROWS_MAX, ROWS_MAX)


@pytest.mark.parametrize("kind", Settle)
def test_a_cursor_takes_no_settlement(open_groups: Open, kind: Settle) -> None:
    """Records that one left unfinished would hold back its pointer for ever."""
    topic = open_groups(mode="cursor")
    pointers = topic.publish(*[b"x"] * 10)
    assert code(topic.settle, Settlement(kind, pointers[4], pointers[5], 1)) == "bad_request"
    topic.call(CommitCursor("g", pointers[6]))
    assert (topic.info().after, topic.info().lag, topic.pending().ranges) == (pointers[6], 3, [])


def test_lag_is_exact_after_a_power_cut_that_took_records(open_groups: Open, faulty: FaultyDisk) -> None:
    """Ordinals of lost records come again."""
    topic = open_groups()
    topic.publish(b"a")
    topic.topic.topic._log.sync()
    topic.publish(*[b"lost"] * 5)
    topic.ack(topic.fetch().rows)
    topic.topic.topic.groups._store.sync()
    topic.kill()
    disk = topic.disk
    assert isinstance(disk, FaultyDisk)
    memory = disk._below
    for content in memory._now.values():  # type: ignore[attr-defined]
        content.now[:] = content.certain
    topic.clock.reboot()
    topic.restart()
    topic.publish(b"b", b"c")
    assert topic.info().lag == 2
    assert topic.fetch().values == [b"b", b"c"]


def test_no_fsync_is_under_way_once_the_log_is_closed(open_groups: Open) -> None:
    """A late fsync would have a file that is closed, or another one with its descriptor."""
    topic = open_groups(durability="synced")
    topic.publish(b"a")
    request, payload = acks(*topic.fetch().rows)
    asked = pending(request, payload)
    topic.topic.handle(asked, Close())
    assert topic.topic.services.is_idle
    assert topic.topic.codes([asked]) == [""]


def test_a_topic_closes_although_the_log_of_its_groups_fails(open_groups: Open, faulty: FaultyDisk) -> None:
    """Acks that waited for that are refused, and the log can be opened again."""
    topic = open_groups(durability="synced")
    topic.publish(b"a")
    topic.topic.topic._log.sync()
    request, payload = acks(*topic.fetch().rows)
    asked = pending(request, payload)
    faulty.fail("sync")
    topic.topic.handle(asked, Close())
    assert topic.topic.codes([asked]) == ["storage_failed"]
    topic.restart()
    assert topic.info().lag == 0, "it was written, if not more"


def ready(topic: GroupTopic, asked: PendingRequest) -> float:
    """The time at which the group may have something, as it was reported last after a request."""
    events = topic.topic.events
    at = [row for row, event in enumerate(events) if getattr(event, "request", None) is asked][-1]
    return min(event.at for event in events[at - 3 :] if isinstance(event, GroupReady))


def test_every_settlement_says_when_there_is_something_again(open_groups: Open) -> None:
    """Fetches wait for that, and for nothing else."""
    topic = open_groups(lease=100.0, max_in_flight=2)
    first, second = topic.publish(b"a", b"b")
    ((token, *_),) = topic.fetch(2).rows
    topic.publish(b"c")

    def settled(kind: Settle, pointer: int, milliseconds: int = 0) -> float:
        row = Settlement(kind, pointer, pointer, token, milliseconds)
        return ready(topic, topic.ask(GroupSettle("g", 1), encode_settlements([row])))

    assert settled(Settle.EXTEND, first, 20_000) == 20.0
    assert settled(Settle.NACK, first, 10_001) == 10.0
    assert settled(Settle.ACK, second) == 0.0, "there is room for another record"


def test_a_fetch_says_when_there_is_something_again_for_others(open_groups: Open) -> None:
    """Or one that waits would sleep through the end of the lease that it begins."""
    topic = open_groups(lease=100.0)
    topic.publish(b"a")
    topic.fetch(1)
    (event,) = [event for event in topic.topic.events if isinstance(event, GroupReady)][-1:]
    assert event.at == 100.0
