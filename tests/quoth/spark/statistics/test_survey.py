"""Windows of topics equal those computed from every record, for any division into ranges."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import groupby

import pytest

from kit.broker.brokers import StartBroker
from kit.disk.damage import flip, stored_batches
from kit.scale import times
from kit.spark.workers import LocalWorkers
from quoth import Client, Message
from quoth.message import Gap
from quoth.spark.jobs.stats import gap_line, summary_of
from quoth.spark.statistics.survey import Survey, SurveyRange, WindowRow, survey
from quoth.timestamps import now
from quothwire.batch import HEADER_BYTES
from quothwire.errors import NotFound
from quothwire.pointer import POINTER_MAX

GIANT = POINTER_MAX
MILLISECOND = 1_000


class Workers(LocalWorkers):
    """This process, as so many."""

    def __init__(self, slots: int) -> None:
        self.slots = slots


def look(client: Client, topic: str, width: int = GIANT, after: int = 0, slots: int = 3) -> Survey:
    """Survey all of a topic."""
    whole = SurveyRange(topic, after, max(now(), client.topic(topic).last))
    return survey(client, Workers(slots), [whole], width)


def fields(rows: Iterable[WindowRow]) -> list[tuple[int, ...]]:
    """The fields of rows that do not depend on the clock."""
    return [
        (
            row.start, row.records, row.value_bytes, row.key_bytes, row.keyed, row.keys, row.largest,
            row.largest_pointer, row.first, row.last,
        )
        for row in rows
    ]  # fmt: skip


def by_hand(messages: Iterable[Message], width: int) -> list[tuple[int, ...]]:
    """The same of records, one by one."""
    found: list[tuple[int, ...]] = []
    for start, group in groupby(messages, lambda one: one.pointer // width * width):
        records = list(group)
        keys = [one.key for one in records if one.key is not None]
        sizes = [len(one.value) + len(one.key or b"") for one in records]
        found.append((
            start, len(records), sum(len(one.value) for one in records), sum(map(len, keys)), len(keys),
            len(set(keys)), max(sizes), records[sizes.index(max(sizes))].pointer, records[0].pointer,
            records[-1].pointer,
        ))  # fmt: skip
    return found


def publish(client: Client, topic: str, rng: random.Random, batches: int) -> None:
    """Publish records with and without keys, empty ones among them."""
    for _ in range(batches):
        count = rng.randint(1, 3_000)
        keys = [rng.choice([None, b"", b"a", b"key %d" % rng.randint(0, 700)]) for _ in range(count)]
        values = [b"x" * rng.choice([0, 1, 5, 200]) for _ in range(count)]
        client.publish(topic, values, key=keys if rng.random() < 0.7 else None)


def test_windows_equal_those_counted_by_hand(client: Client, topic: str, rng: random.Random) -> None:
    publish(client, topic, rng, times(4, 80))
    messages = client.read(topic, limit=10**9)
    for width, slots in [(GIANT, 1), (GIANT, 7), (MILLISECOND, 1), (MILLISECOND, 7), (3_333, 50), (1, 2)]:
        seen = look(client, topic, width, slots=slots)
        assert fields(seen.rows) == by_hand(messages, width), (width, slots)
        assert seen.gaps == []
    after = rng.choice(messages).pointer
    rest = [one for one in messages if one.pointer > after]
    assert fields(look(client, topic, MILLISECOND, after).rows) == by_hand(rest, MILLISECOND)


def test_keys_of_a_window_in_two_ranges_are_those_of_both(client: Client, topic: str) -> None:
    """The window is the last one of a range and the first one of the next one, which have others, too."""
    first, second = (
        client.publish(topic, [b""] * 5_000, key=[b"%s %d" % (name, n // 10) for n in range(5_000)])
        for name in (b"a", b"b")
    )
    width = next(
        width
        for width in range(second.first - first.last, second.last - first.first)
        if first.first // width < first.last // width == second.first // width < second.last // width
    )
    seen = look(client, topic, width, slots=2)
    assert fields(seen.rows) == by_hand(client.read(topic, limit=10**6), width)


def test_lag_is_the_number_of_records_behind_a_window(client: Client, topic: str) -> None:
    client.publish(topic, [b"x"] * 5_000)
    seen = look(client, topic, MILLISECOND)
    newest = seen.rows[-1].last
    behind = 5_000
    for row in seen.rows:
        behind -= row.records
        assert (row.behind_records, row.behind_s) == (behind, (newest - row.last) / 1e6)
    assert behind == 0


def test_rates_cover_the_surveyed_time(client: Client, topic: str) -> None:
    first = client.publish(topic, [b"1234"] * 5_000, key=[b"k"] * 5_000).first
    inner = look(client, topic, MILLISECOND).rows[1]
    assert (inner.records, inner.records_per_s, inner.bytes_per_s) == (1_000, 1e6, 5e6)
    (whole,) = survey(client, Workers(2), [SurveyRange(topic, first - 1, first + 1_999)], GIANT).rows
    assert (whole.records, whole.records_per_s) == (2_000, 1e6)


def test_topics_are_reported_in_turn_and_an_empty_one_has_no_windows(client: Client, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    ends = [client.publish(name, [b"x"] * (100 * count)).last for count, name in enumerate(names, 1)]
    ranges = [SurveyRange(name, 0, end) for name, end in zip(names, ends, strict=True)]
    rows = survey(client, Workers(2), ranges, GIANT).rows
    assert [(row.topic, row.records) for row in rows] == list(zip(names, [100, 200, 300], strict=True))
    client.create_topic(topic)
    seen = look(client, topic)
    assert (seen.rows, seen.gaps) == ([], [])
    assert summary_of([topic], seen).lines == [f"{topic}: no records"]
    with pytest.raises(NotFound, match="unknown_topic"):
        survey(client, Workers(1), [SurveyRange(f"{topic}-d", 0, 5)], GIANT)


def test_records_removed_by_retention_are_reported_with_their_place(client: Client, topic: str) -> None:
    client.publish(topic, [b"gone"] * 70)
    client.roll(topic)
    kept = client.publish(topic, [b"kept"] * 30).first
    client.trim(topic, kept)
    seen = look(client, topic)
    assert [(gap.after, gap.next, gap.records, gap.reason) for gap in seen.gaps] == [(0, kept, 70, "trimmed")]
    assert [(row.records, row.missing, row.first) for row in seen.rows] == [(30, 0, kept)]
    summary = summary_of([topic], seen)
    assert summary.good
    assert summary.content["topics"][0]["missing"] == 70
    client.roll(topic)
    client.trim(topic, seen.rows[-1].last + 1)
    seen = look(client, topic)
    assert (seen.rows, [gap.records for gap in seen.gaps]) == ([], [100])
    assert summary_of([topic], seen).lines[-1] == f"{topic}: no records; 100 missing"


def test_damaged_records_are_missing_in_their_window_and_the_others_count(
    start_broker: StartBroker, connect: Callable[..., Client], topic: str
) -> None:
    broker = start_broker()
    client = connect(broker)
    acks = [client.publish(topic, [b"%d" % number] * 20) for number in range(4)]
    log_id = client.topic(topic).log
    broker.kill()
    damaged = stored_batches(broker.topics_directory, log_id)[1]
    flip(damaged.path, damaged.start + HEADER_BYTES + 2)
    broker.restart()
    for slots in (1, 4):
        seen = look(client, topic, slots=slots)
        (row,) = seen.rows
        assert (row.records, row.missing, row.value_bytes) == (60, 20, 60)
        assert (row.first, row.last, row.behind_records) == (acks[0].first, acks[3].last, 0)
        (gap,) = seen.gaps
        assert (gap.records, gap.reason) == (20, "damaged")
        assert acks[0].last <= gap.after < acks[1].first
        assert acks[1].last < gap.next <= acks[2].first
        summary = summary_of([topic], seen)
        assert not summary.good
        assert summary.lines[-1].endswith("; 20 missing")


def test_gaps_are_described_by_topic_place_and_reason() -> None:
    assert gap_line(Gap("a", 0, 7, 3, "trimmed")) == "a: 3 records missing before 7: trimmed"
    unknown = Gap("a", 5, 7, -1, "recreated")
    assert gap_line(unknown) == "a: an unknown number of records missing behind 5 and before 7: recreated"
