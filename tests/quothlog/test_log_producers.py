"""Idempotence: a batch that comes again is stored once, whatever happened in between."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from kit.clocks import DAY, MINUTE, SECOND, ManualClock
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, encoded, outcome_of, put, values
from quothlog import Appended, Log
from quothlog.producers import PRODUCERS_MAX, RESULTS_MAX
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX


def dense(producer: int, sequence: int, value: bytes = b"") -> bytes:
    return encoded([value or b"%d/%d" % (producer, sequence)], producer, sequence)


def sparse(producer: int, sequence: int, *, start: bool = False, value: bytes = b"") -> bytes:
    value = value or b"%d/%d" % (producer, sequence)
    return encoded([value], producer, sequence, sparse=True, start=start)


def counting(sequence: int, *records: bytes, start: bool = False) -> bytes:
    """A batch of a producer whose sequences count records."""
    return encoded(records, 5, sequence, ordinal=True, start=start)


def repeated(first: Appended) -> Appended:
    """Return the outcome of appending a batch a second time."""
    return replace(first, duplicate=True)


def after(event: str, log: Log, reopen: Callable[[], Log]) -> Log:
    """Let something happen to a log; returns it as it is open then."""
    match event:
        case "roll":
            log.roll()
        case "retention":
            log.trim(POINTER_MAX)
            assert values(log) == []
        case "loss of the index":
            for path in log.directory.glob("*.idx"):
                path.unlink()
        case "clean end":
            log.close()
            return reopen()
        case "crash":
            log.discard()
            return reopen()
    return log


@pytest.mark.parametrize(
    "events",
    [
        [], ["roll"], ["retention"], ["clean end"], ["crash"], ["loss of the index", "crash"],
        ["retention", "crash", "loss of the index", "crash"],
    ],
    ids=", ".join,
)  # fmt: skip
def test_retries_are_stored_once_and_get_the_first_pointers(open_log: OpenLog, events: list[str]) -> None:
    """Every one of the last 64, over restarts, rolls and retention."""
    log = open_log()
    raws = [dense(5, n) for n in range(1, RESULTS_MAX + 11)] + [sparse(6, 3, start=True), sparse(6, 700)]
    stored = [put(log, raw)[0] for raw in raws]
    log.sync()
    for event in events:
        log = after(event, log, open_log)
    ordinal = log.end_ordinal
    for raw, first in list(zip(raws, stored, strict=True))[10:]:
        assert outcome_of(log, raw) == repeated(first)
    for raw in raws[:10]:
        assert outcome_of(log, raw) == "forgotten_sequence"
    assert outcome_of(log, dense(5, 76)) == "out_of_sequence"
    assert outcome_of(log, dense(5, 75, b"new")) != "out_of_sequence"
    assert outcome_of(log, sparse(6, 699)) == "out_of_sequence"
    assert outcome_of(log, dense(5, 70, b"other")) == "sequence_reused"
    assert outcome_of(log, dense(7, 2)) == "unknown_producer"
    assert log.end_ordinal == ordinal + 1


STORED = "stored"
SCENARIOS: dict[str, list[tuple[bytes, str]]] = {
    "a dense producer counts from one without a gap": [
        (dense(5, 2), "unknown_producer"), (dense(5, 1), STORED), (dense(5, 3), "out_of_sequence"),
        (dense(5, 2), STORED), (dense(5, 3), STORED),
    ],
    "sequences that count records have no hole": [
        (counting(11, b"a"), "unknown_producer"),
        (counting(11, b"a", b"b", b"c", start=True), STORED), (counting(14, b"d", b"e"), STORED),
        (counting(15, b"f"), "out_of_sequence"), (counting(17, b"f"), "out_of_sequence"),
        (counting(16, b"f"), STORED), (counting(11, b"a", b"b", b"c", start=True), "1"),
        (counting(14, b"d", b"e"), "2"), (counting(14, b"d"), "sequence_reused"),
    ],
    "START may leave a hole in sequences that count records, and nothing else": [
        (counting(1, b"a", b"b", start=True), STORED), (counting(2, b"x", start=True), "out_of_sequence"),
        (counting(10, b"c", b"d", start=True), STORED), (counting(12, b"e"), STORED),
        (counting(11, b"x", start=True), "out_of_sequence"),
        (counting(5, b"x", start=True), "out_of_sequence"),
    ],
    "a sparse producer may leave gaps and says that it begins": [
        (sparse(5, 10), "unknown_producer"), (sparse(5, 10, start=True), STORED), (sparse(5, 11), STORED),
        (sparse(5, 5_000), STORED), (sparse(5, 2**64 - 1), STORED), (sparse(5, 12), "out_of_sequence"),
        (sparse(5, 9), "forgotten_sequence"),
    ],
    "a producer that begins again by mistake is known": [
        (sparse(5, 1, start=True), STORED), (sparse(5, 1, start=True), "0"),
        (sparse(5, 2, start=True), STORED),
    ],
    "other bytes, or as many records in other places, are never taken for the same": [
        (encoded([b"ab", b"c"], 5, 1), STORED), (encoded([b"a", b"bc"], 5, 1), "sequence_reused"),
        (encoded([b"abc"], 5, 1), "sequence_reused"),
    ],
    "batches without a producer are stored each time": [(encoded([b"x"]), STORED)] * 3,
}  # fmt: skip
"""Batches, each with its outcome: stored, a code, or the number of the one that it repeats."""


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_sequences_of_a_producer_have_the_rules_of_its_kind(
    log: Log, scenario: list[tuple[bytes, str]]
) -> None:
    outcomes: list[Appended | str] = []
    stored: list[bytes] = []
    for raw, expected in scenario:
        outcomes.append(outcome := outcome_of(log, raw))
        if expected == STORED:
            assert isinstance(outcome, Appended)
            assert not outcome.duplicate
            stored += batch.decode(raw).values
        elif expected.isdecimal():
            first = outcomes[int(expected)]
            assert isinstance(first, Appended)
            assert outcome == repeated(first)
        else:
            assert outcome == expected
    assert values(log) == stored


def test_out_of_sequence_can_be_tried_again(log: Log) -> None:
    """A pipelined producer keeps its order: nothing behind a gap is stored, all of it may come again."""
    raws = [dense(5, n) for n in (1, 3, 4, 2)]
    outcomes = log.append_batches(raws)
    refused = [outcome.retryable for outcome in outcomes if isinstance(outcome, QuothError)]
    assert refused == [True, True]
    put(log, *raws[1:3])
    assert values(log) == [b"5/1", b"5/2", b"5/3", b"5/4"]


def test_embedded_log_numbers_its_batches_by_ordinals(log: Log) -> None:
    """Also behind batches of others: a forwarder changes nothing but where there is a hole."""
    log.append([b"a", b"b"])
    put(log, dense(7, 1))
    log.append([b"c"])
    log.append([b"d"])
    found = log.fetch(0)
    assert found is not None
    headers = [batch.parse_header(raw, log.log_id) for raw in batch.split(found.data, log.log_id)]
    own = [one for one in headers if one.producer == log.log_id]
    assert [(one.sequence, bool(one.flags & Flag.START)) for one in own] == [(1, True), (4, True), (5, False)]
    assert all(one.flags & Flag.ORDINAL and one.sequence == one.ordinal + 1 for one in own)


def test_retry_in_the_same_burst_is_stored_once(log: Log) -> None:
    """The first one has to be on the disk before the second one gets its pointers."""
    outcomes = put(log, dense(5, 1), dense(5, 2), dense(5, 1), dense(6, 1), dense(5, 2), dense(5, 3))
    assert [outcome.duplicate for outcome in outcomes] == [False, False, True, False, True, False]
    assert outcomes[2] == repeated(outcomes[0])
    assert outcomes[4] == repeated(outcomes[1])
    assert values(log) == [b"5/1", b"5/2", b"6/1", b"5/3"]


def test_retry_in_the_same_burst_as_a_write_that_fails_is_not_called_stored(open_log: OpenLog) -> None:
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    disk.fail("write", problem=errno.ENOSPC, lasting=True)
    outcomes = log.append_batches([dense(5, 1), dense(5, 1), dense(5, 2)])
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, QuothError)]
    assert codes == ["disk_low"] * 3
    disk.heal()
    assert [one.duplicate for one in put(log, dense(5, 1), dense(5, 1), dense(5, 2))] == [False, True, False]
    assert values(log) == [b"5/1", b"5/2"]


def test_producer_beyond_the_table_is_busy_while_all_others_are_active(
    open_log: OpenLog, clock: ManualClock
) -> None:
    """The table is full of producers that may be retrying: `busy`, retryable, nothing stored."""
    clock.tick = 0
    log = open_log()
    put(log, *(dense(producer, 1) for producer in range(1, PRODUCERS_MAX + 1)))
    (refused,) = log.append_batches([dense(9_999, 1)])
    assert isinstance(refused, QuothError)
    assert (refused.code, refused.retryable) == ("busy", True)
    put(log, *(dense(producer, 2) for producer in range(2, PRODUCERS_MAX + 1)), encoded([b"without"]))
    clock.step(MINUTE)
    put(log, *(dense(producer, 3) for producer in range(3, PRODUCERS_MAX + 1)))
    put(log, dense(9_999, 1))
    assert outcome_of(log, dense(1, 2)) == "unknown_producer", "the one that was silent for longest"
    assert outcome_of(log, dense(2, 3, b"second oldest")) != "busy"
    assert log.info().gauges["producers"] == PRODUCERS_MAX


def test_new_producers_of_one_burst_replace_silent_ones_only(open_log: OpenLog, clock: ManualClock) -> None:
    clock.tick = 0
    log = open_log()
    put(log, dense(1, 1), dense(2, 1))
    clock.step(2 * MINUTE)
    others = range(3, PRODUCERS_MAX + 1)
    put(log, *(dense(producer, 1) for producer in others))
    outcomes = log.append_batches([dense(producer, 1) for producer in range(5_001, 5_006)])
    codes = [outcome.code if isinstance(outcome, QuothError) else "stored" for outcome in outcomes]
    assert codes == ["stored", "stored", "busy", "busy", "busy"]
    assert all(isinstance(outcome_of(log, dense(producer, 1)), Appended) for producer in others)


def test_refused_write_does_not_make_a_silent_producer_active(open_log: OpenLog, clock: ManualClock) -> None:
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    clock.tick = 0
    put(log, dense(1, 1))
    clock.step(2 * MINUTE)
    put(log, *(dense(producer, 1) for producer in range(2, PRODUCERS_MAX + 1)))
    disk.fail("write", problem=errno.ENOSPC)
    assert outcome_of(log, dense(1, 2)) == "disk_low"
    put(log, dense(5_001, 1))
    assert outcome_of(log, dense(1, 2)) == "unknown_producer"
    assert isinstance(outcome_of(log, dense(2, 2)), Appended)


def test_clock_that_steps_back_does_not_exclude_new_producers(open_log: OpenLog, clock: ManualClock) -> None:
    """Comparisons with the clock clamp: producers from the future are not all at work now."""
    log = open_log()
    put(log, *(dense(producer, 1) for producer in range(1, PRODUCERS_MAX + 1)))
    clock.step(-DAY)
    put(log, dense(5_001, 1))
    assert outcome_of(log, dense(1, 2)) == "unknown_producer"


def test_producer_that_was_silent_for_a_week_gets_unknown_producer(
    open_log: OpenLog, clock: ManualClock
) -> None:
    """Never silently accepted: it may have been stored before."""
    log = open_log()
    put(log, dense(5, 1), dense(6, 1))
    clock.step(6 * DAY)
    put(log, dense(6, 2))
    clock.step(DAY + SECOND)
    log.close()
    log = open_log()
    assert outcome_of(log, dense(5, 2)) == "unknown_producer"
    assert isinstance(outcome_of(log, dense(6, 3)), Appended)


def test_embedded_log_is_a_known_producer_after_a_month(open_log: OpenLog, clock: ManualClock) -> None:
    """Its batches carry its id and its ordinals, so they can be forwarded exactly once."""
    log = open_log()
    log.append([b"a", b"b"])
    clock.step(30 * DAY)
    log = after("clean end", log, open_log)
    log.append(b"after a month")
    log.sync()
    assert (values(log), log.end_ordinal) == ([b"a", b"b", b"after a month"], 3)
