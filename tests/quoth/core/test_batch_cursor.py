"""A cursor that moves over the batches of answers, without a broker."""

from __future__ import annotations

import pytest

from quoth import Gap
from quoth.reader import RecordReader
from quothwire import batch
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Fetched

LOG, FIRST = 8, 2_000


def answer(first: int, ordinal: int, *, gone: int = 0, damaged: int = 0) -> Answer:
    """An answer with a batch of two records. gone: the records that are missing in front of it."""
    raw = batch.encode([b"a", b"b"])
    stored = batch.stamp(batch.parse_header(raw, 0).placed(first, ordinal), LOG) + raw[batch.HEADER_BYTES :]
    last = first + 1
    reply = Fetched(next=last, newest=last, end=ordinal + 2, gone=gone, damaged=damaged, log=LOG)
    return Answer(0, reply, stored)


def reader_at(after: int, ordinal: int, log: int, gaps: list[Gap]) -> RecordReader:
    """A reader that has come so far."""
    reader = RecordReader("t", after, gaps.append)
    reader.resume(after, log, ordinal)
    return reader


def test_missing_records_are_a_gap_with_their_number_if_the_cursors_ordinal_is_known() -> None:
    """Records before the oldest one are no loss for a reader that begins there."""
    for after, ordinal, missing, gaps in (
        (1_000, 6, {"gone": 0}, []),
        (1_000, 2, {"gone": 4}, [(4, "trimmed", 2)]),
        (1_000, 2, {"gone": 4, "damaged": 3}, [(1, "trimmed", 2), (3, "damaged", 3)]),
        (1_000, -1, {"gone": 4}, [(-1, "trimmed", -1)]),
        (1_000, -1, {"gone": 4, "damaged": 4}, [(-1, "damaged", -1)]),
        (0, -1, {"gone": 6}, []),
    ):
        found: list[Gap] = []
        reader = reader_at(after, ordinal, LOG, found)
        (one,) = reader.take(answer(FIRST, 6, **missing))
        assert (one.values, reader.after, reader.ordinal) == ([b"a", b"b"], FIRST + 1, 8)
        assert [(gap.records, gap.reason, gap.ordinal) for gap in found] == gaps, (after, ordinal, missing)
        assert all(gap.next == FIRST for gap in found)


def test_a_topic_that_was_created_again_is_read_whole_though_the_old_one_had_higher_pointers() -> None:
    """Above a million records a second pointers run ahead of the clock, where a new topic begins."""
    gaps: list[Gap] = []
    reader = reader_at(3_000, 500, LOG - 1, gaps)
    assert list(reader.take(answer(FIRST, 0))) == []
    assert (reader.after, reader.has_more) == (0, True), "the next fetch begins with the new topic"
    (found,) = reader.take(answer(FIRST, 0))
    assert (found.first, found.values) == (FIRST, [b"a", b"b"])
    assert gaps == [Gap("t", 3_000, FIRST, -1, "recreated")]


def test_a_batch_with_a_damaged_header_is_fetched_alone_and_costs_no_other_records() -> None:
    """Only a reply with one batch says where that one ends. It may be whole there: then nothing is lost."""
    whole, behind = answer(FIRST, 0), answer(FIRST + 2, 2)
    damaged = bytes([whole.payload[0] ^ 1]) + bytes(whole.payload[1:])
    assert isinstance(behind.reply, Fetched)
    both = Answer(0, behind.reply, damaged + bytes(behind.payload))
    for alone, values, gaps in (
        (Answer(0, whole.reply, damaged), [b"a", b"b"], [Gap("t", 1_000, FIRST + 2, -1, "damaged", 0)]),
        (whole, [b"a", b"b"] * 2, []),
    ):
        found: list[Gap] = []
        reader = reader_at(1_000, 0, LOG, found)
        assert list(reader.take(both)) == []
        assert (reader.after, found, reader.next_fetch(0, 1).records_max) == (1_000, [], 1)
        read = [value for one in reader.take(alone) for value in one.values]
        assert reader.next_fetch(0, 1).records_max > 1
        read += [value for one in reader.take(behind) for value in one.values]
        assert (read, found, reader.after) == (values, gaps, FIRST + 3)


def test_nothing_is_fetched_ahead_of_a_topic_that_was_created_again() -> None:
    reader = reader_at(3_000, 500, LOG - 1, [])
    call = reader.fetch_ahead(timeout=1)
    next(call)
    with pytest.raises(StopIteration) as end:
        call.send(answer(FIRST, 0))
    assert list(end.value.value) == []
    assert (reader.after, reader.prefetch) == (0, None)


def test_a_cursor_above_the_newest_record_is_reported_once_and_a_time_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nothing = Answer(0, Fetched(next=0, newest=FIRST, end=3, gone=0, damaged=0, log=LOG), b"")
    gaps: list[Gap] = []
    reader = reader_at(FIRST + 7, -1, LOG, gaps)
    for _ in range(3):
        assert list(reader.take(nothing)) == []
    assert gaps == [Gap("t", FIRST, FIRST + 8, 0, "ahead", 3)]
    (found,) = reader.take(answer(FIRST + 10, 3))
    assert (found.first, len(gaps)) == (FIRST + 10, 1)
    from_a_time = reader_at(FIRST + 7, -1, LOG, gaps)
    from_a_time.is_time = True
    assert list(from_a_time.take(nothing)) == []
    assert (len(gaps), caplog.records) == (1, [])
    assert list(RecordReader("t", FIRST + 7).take(nothing)) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"the cursor lies above the newest record topic='t' newest={FIRST} next={FIRST + 8}"
    ]
