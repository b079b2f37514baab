"""Damaged bytes on the disk: every whole record is read, and lost ones are reported, once and exactly.

Whatever reads, whatever is damaged and wherever it lies: no wrong record, no record twice, no endless loop.
Twelve batches of three records lie in three segments, two of them sealed, when their broker ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path

import pytest

import quoth
from kit.broker.peers import refused
from kit.client.reading import WAYS, Told, Way, by_portions, by_read
from kit.disk.corruptions import BATCHES, RECORDS, SEGMENTS, Left
from kit.disk.damage import Stored, flip, stored_batches, zero
from quoth import Client, Gap, Message
from quothd import Broker
from quothwire.batch import HEADER_BYTES

LAST = SEGMENTS * BATCHES - 1
END = b"published behind the damage"


# -- what is damaged ----------------------------------------------------------------------------------------


def in_magic(one: Stored) -> None:
    flip(one.path, one.start)


def in_length(one: Stored) -> None:
    flip(one.path, one.start + 10)


def in_pointer(one: Stored) -> None:
    flip(one.path, one.start + 17)


def in_offsets(one: Stored) -> None:
    flip(one.path, one.start + HEADER_BYTES + 1)


def in_value(one: Stored) -> None:
    flip(one.path, one.end - 9)


def all_zero(one: Stored) -> None:
    zero(one.path, one.start, one.end)


Harm = Callable[[Stored], None]
HARMS: list[Harm] = [in_pointer, in_value, all_zero, in_magic, in_length, in_offsets]


@contextmanager
def serve(left: Left, directory: Path, harm: Harm, *numbers: int) -> Iterator[Client]:
    """A client of a broker on a copy with harm done to some batches. `END` is published behind it."""
    shutil.copytree(left.directory, directory)
    stored = stored_batches(directory / "topics", left.log_id)
    for number in numbers:
        harm(stored[number])
    with Broker(directory) as broker, quoth.connect(broker) as client:
        client.publish("t", END)
        yield client


# -- the account ------------------------------------------------------------------------------------------


def check(told: Told, published: Sequence[Message], lost: set[int], way: Way, after: int = 0) -> None:
    """Check that this is everything whole above a cursor, and an exact account of the rest.

    Lost batches at the very end may have been quarantined when the log was opened; then its readers never
    hear of them.
    """
    found, gaps = told
    above = [(row // RECORDS, message) for row, message in enumerate(published) if message.pointer > after]
    assert found == [message for number, message in above if number not in lost]
    for gap in gaps:
        assert gap.reason == "damaged"
        assert not [message for message in found if gap.after < message.pointer < gap.next]
        if gap.ordinal >= 0:
            gone = published[gap.ordinal : gap.ordinal + gap.records]
            assert gone
            assert all(gap.after < message.pointer < gap.next for message in gone)
    assert all(earlier.next <= later.after + 1 for earlier, later in pairwise(gaps))
    whole = max({*range(LAST + 1)} - lost, default=0)
    missed = [(number, message) for number, message in above if number in lost]
    hidden = {number for number, _ in missed if number > max(whole, 7)}
    for number, message in missed:
        times_told = len([gap for gap in gaps if gap.after < message.pointer < gap.next])
        assert times_told == 1 or (times_told == 0 and number in hidden)
    counts = [gap.records for gap in gaps]
    if way is by_portions or after:
        assert all(count == -1 or count > 0 for count in counts)
    else:
        certain = [message for number, message in missed if number not in hidden]
        assert len(certain) <= sum(counts) <= len(missed)


@pytest.mark.parametrize("harm", [in_value, in_magic], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("number", [2, 3, 4])
def test_cursor_anywhere_misses_nothing_silently(left: Left, tmp_path: Path, harm: Harm, number: int) -> None:
    """Also right in front of the damage, in it and behind it."""
    end = left.published[number * RECORDS + RECORDS - 1].pointer
    with serve(left, tmp_path / "data", harm, number) as client:
        for way in WAYS:
            for message in left.published[:18]:
                told = way(client, "t", END, message.pointer)
                check(told, left.published, {number}, way, message.pointer)
                if message.pointer != end:  # a damaged header does not show whether this was the last
                    assert bool(told[1]) is (message.pointer < end)


def test_gap_of_a_cursor_inside_a_damaged_batch_counts_what_was_ahead(left: Left, tmp_path: Path) -> None:
    inside = left.published[2 * RECORDS].pointer
    with serve(left, tmp_path / "data", in_value, 2) as client:
        _, gaps = by_read(client, "t", END, inside)
    (gap,) = gaps
    assert (gap.after, gap.next, gap.records) == (inside, inside + 3, 2)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_get_of_a_damaged_record_says_so(left: Left, tmp_path: Path, harm: Harm) -> None:
    with serve(left, tmp_path / "data", harm, 2) as client:
        for row, message in enumerate(left.published):
            if row // RECORDS == 2:
                with refused("damaged"):
                    client.get("t", message.pointer)
            else:
                assert client.get("t", message.pointer) == message


def test_gap_is_a_warning_in_the_log_unless_one_asks_for_it(
    left: Left, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(left, tmp_path / "data", in_value, 2) as client:
        client.read("t")
    (record,) = [record for record in caplog.records if record.name == "quoth"]
    assert record.levelname == "WARNING"
    assert "3 records are missing" in record.getMessage()
    assert "reason=damaged" in record.getMessage()


def test_callback_that_raises_stops_the_reading(left: Left, tmp_path: Path) -> None:
    """Everything in front of the gap was handed out before."""

    def refuse(gap: Gap) -> None:
        raise LookupError(gap)

    before = left.published[: 2 * RECORDS]
    with serve(left, tmp_path / "data", in_value, 2) as client:
        tail = client.tail("t", after=0, on_gap=refuse)
        assert list(islice(tail, 2 * RECORDS)) == before
        with pytest.raises(LookupError):
            next(tail)
        with pytest.raises(LookupError):
            client.read("t", on_gap=refuse)
        assert client.read("t", limit=2 * RECORDS, on_gap=refuse) == before


@pytest.mark.parametrize("numbers", [(8, 9, 10, 11), tuple(range(12))], ids=["active", "everything"])
def test_what_is_damaged_to_its_end_is_told_with_the_next_record(
    left: Left, tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    """In sealed segments. Batches at the very end are quarantined."""
    with serve(left, tmp_path / "data", all_zero, *numbers) as client:
        end = client.read("t")[-1]
        assert end.pointer > left.published[-1].pointer
        for way in WAYS:
            check(way(client, "t", END, 0), left.published, {*numbers}, way)
