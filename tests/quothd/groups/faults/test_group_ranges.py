"""Ranges of unfinished records: a group has no more of them than its snapshot may have."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kit.clocks import SECOND
from kit.groups.group_topics import GroupTopic, code
from quothd.groups import settling
from quothd.requests.events import Waiting
from quothlog.groups import events, group_log, group_state
from quothlog.groups.spans import RANGES_MAX, Span
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import GroupFetch
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement

Open = Callable[..., GroupTopic]
LIMIT, DIVIDED_LIMIT = 8, 12
ATTEMPTS = 2**32 - 1
"""As many as a snapshot needs the most bytes for."""


def ack_of(first: int, last: int | None = None) -> Settlement:
    return Settlement(Settle.ACK, first, first if last is None else last, 0)


def at_random(topic: GroupTopic, first: int, last: int, rng: random.Random) -> QuothError:
    """Acknowledge pointers of which no two are neighbours, until that is refused; returns the error."""
    pointers = rng.sample(range(first, last, 2), 5 * ROWS_MAX)
    try:
        while True:
            rows = sorted(pointers.pop() for _ in range(ROWS_MAX))
            topic.settle(*map(ack_of, rows))
    except QuothError as problem:
        return problem


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a group have few ranges."""
    monkeypatch.setattr(group_state, "RANGES_MAX", LIMIT)
    monkeypatch.setattr(settling, "RANGES_MAX", LIMIT)
    monkeypatch.setattr(group_state, "RANGES_DIVIDED_MAX", DIVIDED_LIMIT)


def ranges(topic: GroupTopic) -> int:
    return len(topic.group().spans)


def divide(topic: GroupTopic, first: int, count: int) -> None:
    """Leave a group as if every other pointer above the first one had been acknowledged, so often."""
    group = topic.group()
    (whole,) = group.spans
    group.finish([whole])
    for row in range(count):
        group.spans.append(Span(first + 2 * row, first + 2 * row + 1, ATTEMPTS))
    group.spans.append(Span(first + 2 * count, whole.until, ATTEMPTS))
    group.begin(0.0)


def test_random_acks_make_no_snapshot_that_is_larger_than_a_batch(
    open_groups: Open, rng: random.Random, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused acks change nothing; the log of the group is compacted, and read."""
    topic = open_groups(max_attempts=0)
    first = topic.publish(b"first")[0]
    topic.clock.step(10 * SECOND)
    last = topic.publish(b"last")[-1]
    topic.settle(ack_of(last))
    divide(topic, first, RANGES_MAX - 3 * ROWS_MAX)
    problem = at_random(topic, first + 2 * RANGES_MAX, last - 2, rng)
    before = ranges(topic)
    assert (problem.code, problem.retryable) == ("busy", True)
    assert str(before) in problem.text
    assert RANGES_MAX - ROWS_MAX < before <= RANGES_MAX
    assert BATCH_BYTES_MAX // 2 < len(events.snapshot(topic.group())) < BATCH_BYTES_MAX
    monkeypatch.setattr(group_log, "COMPACT_FACTOR", 0)
    monkeypatch.setattr(group_log, "COMPACT_BYTES", 1)
    topic.pass_time(1.0)
    assert "group_log_not_compacted" not in caplog.text
    topic.kill()
    topic.restart()
    topic.info()
    assert ranges(topic) == before, "it was compacted, and no range is forgotten"
    topic.settle(ack_of(first, last))
    assert (ranges(topic), topic.info().lag) == (0, 0)


@pytest.mark.usefixtures("narrow")
def test_a_group_of_many_ranges_gets_new_records_once_earlier_ones_are_finished(open_groups: Open) -> None:
    topic = open_groups()
    pointers = [topic.publish(b"%d" % number)[0] for number in range(60)]
    leases = [row for _ in range(LIMIT) for row in topic.fetch(2).rows]
    assert ranges(topic) == LIMIT
    assert topic.fetch(2).rows == [], "there is no room for another range"
    _, _, begin, end = leases[0]
    topic.ack(leases[1:2])
    assert topic.fetch(2).pointers == pointers[2 * LIMIT : 2 * LIMIT + 2]
    assert begin < end
    topic.ack([[0, 1, begin, end]])
    assert topic.fetch(2).pointers == pointers[2 * LIMIT + 2 : 2 * LIMIT + 4]
    assert ranges(topic) == LIMIT


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("kind", [Settle.ACK, Settle.NACK, Settle.EXTEND, Settle.RELEASE, Settle.TERM])
def test_no_settlement_divides_a_range_of_a_group_that_has_as_many_as_allowed(
    open_groups: Open, kind: Settle
) -> None:
    """Rows are refused together. Those that divide nothing, or finish one end, have their effect."""
    topic = open_groups()
    topic.publish(*[b"x"] * 6 * LIMIT)
    leases = [row for _ in range(LIMIT) for row in topic.fetch(6).rows]
    token, _, first, last = leases[3]
    middle = Settlement(kind, first + 2, first + 3, token, 0)
    state = topic.pending()
    assert code(topic.settle, middle) == "busy"
    assert code(topic.settle, ack_of(leases[0][2]), middle) == "busy"
    assert topic.pending() == state
    assert topic.settle(ack_of(first, first + 1), ack_of(last)).records == 3
    topic.settle(Settlement(Settle.EXTEND, leases[4][2], leases[4][3], leases[4][0], 0))
    assert ranges(topic) == LIMIT
    topic.ack(leases[:1])
    assert topic.settle(middle).lost == []


@pytest.mark.usefixtures("narrow")
def test_records_that_members_give_back_one_by_one_stay_in_few_ranges(open_groups: Open) -> None:
    """Only whole ranges are handed out again in the end, and all of them are."""
    topic = open_groups(max_in_flight=1_000)
    pointers = topic.publish(*[b"x"] * 200)
    topic.fetch(200)
    topic.kill()
    topic.restart()
    while rows := topic.fetch(1).rows:
        topic.nack(rows, milliseconds=60_001)
    assert ranges(topic) == DIVIDED_LIMIT
    asked = topic.ask(GroupFetch("g", "m", 1, wait_ms=60_000))
    topic.deliver()
    assert isinstance(topic.topic.events[-1], Waiting)
    assert asked.retry == topic.clock.monotonic() + 1.0, "it looks again soon, and not at once"
    rest = topic.fetch(1_000)
    assert rest.pointers == [*pointers[DIVIDED_LIMIT - 1 :]], "the last range, whole"
    topic.ack(rest.rows)
    topic.pass_time(61.0)
    while rows := topic.fetch(1).rows:
        topic.ack(rows)
    assert (topic.info().lag, ranges(topic)) == (0, 0)
