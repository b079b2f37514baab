"""Every kind of damage at every place of a data directory, and some of them together, as clients see it.

Whatever was done: the broker serves, no record is wrong or there twice, each batch that is whole and in its
place is read, lost ones are reported, damaged bytes are kept, other topics are as they were, and publishing
goes on above all earlier pointers. The log's tests hold the tables of damage; these replay it end to end.
QUOTH_LONG=1 tries much more; QUOTH_SEED repeats a run that failed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice, pairwise
from pathlib import Path

import pytest

import quoth
from kit.broker.peers import refused
from kit.disk.corruptions import (
    ACTIVE,
    BATCHES,
    BYTE_CHANGES,
    EVERY_BYTE_CHANGE,
    MISPLACED,
    PLACES,
    RECORDS,
    SETTINGS,
    TOO_EARLY,
    WITHOUT_LOSS,
    Corruption,
    Left,
    Scene,
    foreign_newest,
    leave_behind,
)
from kit.disk.damage import flip, stored_batches
from kit.machine.processes import resident_bytes
from kit.scale import LONG, some, times
from quoth import Client, Gap, Message
from quoth.message import OnGap
from quothd import Broker
from quothlog import file_format
from quothwire.errors import Damaged

END = b"published behind the damage"
MEMORY_MAX = 100 * 2**20


ENDS = ("killed", "terminated")


@pytest.fixture(scope="module", params=ENDS)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The directory of a broker that was killed, or ended in order."""
    return leave_behind(tmp_path_factory.mktemp("left") / "data", killed=request.param == "killed")


in_sealed_segments = pytest.mark.parametrize("left", ["killed"], indirect=True)
"""Marks a test of sealed segments, which are the same after both ends."""


# -- the ways in which a client reads -----------------------------------------------------------------------


def pages(client: Client, after: int, on_gap: OnGap) -> Iterator[Message]:
    """Two records at a time: each page goes on where the one before ended."""
    while found := client.read("t", after=after, limit=2, on_gap=on_gap):
        yield from found
        after = found[-1].pointer


def portions(client: Client, after: int, on_gap: OnGap) -> Iterator[Message]:
    """Two records at a time: each portion begins at a cursor without an ordinal."""
    for message in pages(client, after, on_gap):
        client._ahead.clear()
        yield message


def batches(client: Client, after: int, on_gap: OnGap) -> Iterator[Message]:
    """Batch by batch."""
    for batch in client.batches("t", after=after, on_gap=on_gap):
        yield from batch


WAYS: dict[str, Callable[[Client, int, OnGap], Iterable[Message]]] = {
    "read": lambda client, after, on_gap: client.read("t", after=after, on_gap=on_gap),
    "pages": pages,
    "portions": portions,
    "batches": batches,
    "tail": lambda client, after, on_gap: client.tail("t", after=after, on_gap=on_gap),
}


def read(way: str, client: Client, after: int = 0) -> tuple[list[Message], list[Gap]]:
    """Return the records behind a cursor up to `END`, and the gaps between them."""
    found: list[Message] = []
    gaps: list[Gap] = []
    for message in WAYS[way](client, after, gaps.append):
        if message.value == END:
            return found, gaps
        assert not found or found[-1].pointer < message.pointer, message
        found.append(message)
    raise AssertionError("the end is missing")


# -- what is to be true afterwards --------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def serve_corrupted(
    left: Left, directory: Path, corruptions: Mapping[str, Corruption], rng: random.Random
) -> set[int]:
    """Damage a copy, serve it, read it in every way and look at its files; returns the lost batches."""
    print(*corruptions, sep=", ")
    scene = Scene(left, directory)
    for corrupt in corruptions.values():
        corrupt(scene, rng)
    whole, before, others = scene.whole(), files(scene.folder), files(scene.other)
    blocks = scene.has_block(0), scene.has_block(2)
    memory = resident_bytes(os.getpid())
    with Broker(directory) as broker, quoth.connect(broker) as client:
        assert client.publish("t", END).first > left.published[-1].pointer
        answers = [read(way, client) for way in WAYS]
        assert client.read("other") == left.others
        assert bool(client.topic("t").problem) == any(name in SETTINGS for name in corruptions)
    assert resident_bytes(os.getpid()) - memory < MEMORY_MAX
    for way, (found, gaps) in zip(WAYS, answers, strict=True):
        assert found == answers[0][0], way
        assert_reported(left, whole, found, gaps, way, *blocks)
    assert_kept(others, files(scene.other), changes=False)
    assert_kept(before, files(scene.folder))
    shutil.rmtree(directory)
    return {*range(len(left.written))} - {left.batch_of[message.pointer] for message in answers[0][0]}


def assert_reported(
    left: Left, whole: set[int], found: list[Message], gaps: list[Gap], way: str, first: bool, last: bool
) -> None:
    """Check that all whole batches were found, and that gaps report all others.

    first, last: is the header block of the oldest and of the last segment as it was? Without it it is not
    known whether anything is missing in front, or at the end, where it may have been quarantined.
    """
    batches = left.batch_of
    there = {batches[message.pointer] for message in found}
    assert found == [message for message in left.published if batches[message.pointer] in there]
    assert whole <= there, f"whole, but not served: {whole - there}"
    lost = {*batches.values()} - there
    hidden = {one for one in lost if one > max(there, default=-1) and (one >= ACTIVE or not last)}
    if not first:
        hidden |= {one for one in lost if one < min(there, default=len(left.written))}
    ranges = sorted({(gap.after, gap.next) for gap in gaps})  # the same one may have both reasons
    assert all(one[1] <= other[0] + 1 for one, other in pairwise(ranges)), gaps
    for gap in gaps:
        assert gap.reason == "damaged" or not first
        assert not [message for message in found if gap.after < message.pointer < gap.next]
    missed = [(batches[one.pointer], one.pointer) for one in left.published if batches[one.pointer] in lost]
    for number, pointer in missed:
        reported = len([1 for after, following in ranges if after < pointer < following])
        assert reported == 1 or (reported == 0 and number in hidden), (number, gaps)
    if way == "portions":
        assert all(gap.records == -1 or gap.records > 0 for gap in gaps)
    else:
        certain = sum(number not in hidden for number, _ in missed)
        assert certain <= sum(gap.records for gap in gaps) <= len(missed), gaps


def assert_kept(before: dict[str, bytes], after: dict[str, bytes], *, changes: bool = True) -> None:
    """Check that every byte of every segment is still there, in its place or quarantined.

    Except for zeros at the end, and for a footer, which is made anew.
    """
    assert after.get("topic.json") == before.get("topic.json")
    for name, data in before.items():
        now = after.get(name, b"")
        if not name.endswith(".seg") or now == data or (changes and now.startswith(data)):
            continue
        assert changes, name
        others = {other: torn for other, torn in after.items() if other.startswith(f"{name}.")}
        if has_a_new_footer(data, now) or others.get(f"{name}.1.damaged") == data:
            continue
        torn_at = {int(other.split(".")[2]): torn for other, torn in others.items()}
        kept = [start for start, torn in torn_at.items() if data[start:] == torn]
        if kept:
            left = data[: kept[0]]
            assert name not in after or now == left or has_a_new_footer(left, now), name
        else:
            assert name in after, name
            same = next((row for row, (a, b) in enumerate(zip(data, now, strict=False)) if a != b), len(now))
            assert not any(data[same:]), name


def has_a_new_footer(before: bytes, now: bytes) -> bool:
    """Return True for the same segment with another footer."""
    try:
        end = file_format.decode_footer(now[-file_format.FOOTER_BYTES :]).end.offset
    except Damaged:
        return False
    return before[:end] == now[:end] and len(before) - end <= file_format.FOOTER_BYTES


# -- the matrix ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "place"),
    [(end, place) for row, place in enumerate(PLACES) for end in (ENDS if LONG else [ENDS[row % 2]])],
    indirect=["left"],
)
def test_byte_changes_of_any_kind_at_any_place_are_reported(
    left: Left, tmp_path: Path, rng: random.Random, place: str
) -> None:
    for how in rng.sample([*BYTE_CHANGES], times(1, len(BYTE_CHANGES))):
        for turn in range(times(1, 25)):
            name = f"{how} {place}"
            serve_corrupted(left, tmp_path / f"{how} {turn}", {name: EVERY_BYTE_CHANGE[name]}, rng)


def test_corruptions_without_loss_and_misplaced_batches_are_handled(
    left: Left, tmp_path: Path, rng: random.Random
) -> None:
    without_loss = {
        **WITHOUT_LOSS,
        **TOO_EARLY,
        **SETTINGS,
        "a newest segment of another topic": foreign_newest,
    }
    for name in some([*without_loss], rng, 3):
        assert serve_corrupted(left, tmp_path / "data", {name: without_loss[name]}, rng) == set(), name
    for name in some([*MISPLACED], rng, 3):
        serve_corrupted(left, tmp_path / "data", {name: MISPLACED[name]}, rng)


@pytest.mark.parametrize("chunk", range(times(1, 20)))
def test_several_corruptions_together_are_reported(
    left: Left, tmp_path: Path, rng: random.Random, chunk: int
) -> None:
    for turn in range(times(8, 150)):
        chosen = dict(rng.sample([*EVERY_BYTE_CHANGE.items()], rng.randint(1, 2)))
        chosen |= dict(rng.sample([*chain(WITHOUT_LOSS.items(), MISPLACED.items())], rng.randrange(2)))
        if rng.random() < 0.2:
            chosen |= dict(rng.sample([*SETTINGS.items()], 1))
        serve_corrupted(
            left, tmp_path / f"{chunk} {turn}", dict(rng.sample([*chosen.items()], len(chosen))), rng
        )


# -- the settings -------------------------------------------------------------------------------------------


def test_settings_that_two_topics_have_swapped_lead_to_no_wrong_record(left: Left, tmp_path: Path) -> None:
    """Their checksum is right: if the segments contradict them the topic may be refused."""
    scene = Scene(left, tmp_path / "data")
    settings = scene.settings, scene.other / "topic.json"
    mine, others = (path.read_bytes() for path in settings)
    settings[0].write_bytes(others)
    settings[1].write_bytes(mine)
    before = {folder: files(folder) for folder in (scene.folder, scene.other)}
    with Broker(scene.directory) as broker, quoth.connect(broker) as client:
        for topic in client.topics():
            with suppress(Damaged):
                found = [message[1:] for message in client.read(topic)]
                assert found in ([message[1:] for message in one] for one in (left.published, left.others))
    for folder, kept in before.items():
        assert_kept(kept, files(folder), changes=False)


# -- what a client reports ----------------------------------------------------------------------------------


@contextmanager
def serve(left: Left, directory: Path, number: int, at: int) -> Iterator[Client]:
    """A client of a broker on a copy with one changed byte of a batch, counted from its start or its end."""
    shutil.copytree(left.directory, directory)
    one = stored_batches(directory / "topics", left.log_id)[number]
    flip(one.path, (one.start if at >= 0 else one.end) + at)
    with Broker(directory) as broker, quoth.connect(broker) as client:
        client.publish("t", END)
        yield client


@in_sealed_segments
@pytest.mark.parametrize("at", [0, -9], ids=["header", "body"])
@pytest.mark.parametrize("number", [2, BATCHES - 1, BATCHES])
def test_no_cursor_misses_a_record_silently(left: Left, tmp_path: Path, at: int, number: int) -> None:
    """Also right in front of the damage, in it and behind it."""
    lost = left.published[number * RECORDS : (number + 1) * RECORDS]
    with serve(left, tmp_path / "data", number, at) as client:
        for way in WAYS:
            for after in (message.pointer for message in left.published[: 6 * RECORDS]):
                found, gaps = read(way, client, after)
                assert found == [one for one in left.published if one.pointer > after and one not in lost]
                assert {gap.reason for gap in gaps} <= {"damaged"}
                for one in found:
                    assert not [gap for gap in gaps if gap.after < one.pointer < gap.next]
                for one in lost:
                    reported = [gap for gap in gaps if gap.after < one.pointer < gap.next]
                    assert len(reported) == (one.pointer > after)
                if after != lost[-1].pointer:  # a damaged header does not show whether this was the last
                    assert bool(gaps) is (after < lost[-1].pointer)


@in_sealed_segments
def test_a_gap_is_counted_from_the_cursor_logged_and_raised_by_get(
    left: Left, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = left.published[2 * RECORDS : 3 * RECORDS]
    with serve(left, tmp_path / "data", 2, -9) as client:
        client.read("t")
        gaps: list[Gap] = []
        client.read("t", after=lost[0].pointer, on_gap=gaps.append)
        (gap,) = gaps
        assert (gap.after, gap.next, gap.records) == (lost[0].pointer, lost[-1].pointer + 1, 2)
        for message in left.published:
            if message in lost:
                with refused("damaged"):
                    client.get("t", message.pointer)
            else:
                assert client.get("t", message.pointer) == message
    (record,) = [record for record in caplog.records if record.name == "quoth"]
    assert record.levelname == "WARNING"
    assert "3 records are missing" in record.getMessage()
    assert "reason=damaged" in record.getMessage()


@in_sealed_segments
def test_an_exception_of_a_gap_callback_ends_the_reading(left: Left, tmp_path: Path) -> None:
    """Everything in front of the gap was returned before."""

    def refuse(gap: Gap) -> None:
        raise LookupError(gap)

    before = left.published[: 2 * RECORDS]
    with serve(left, tmp_path / "data", 2, -9) as client:
        tail = client.tail("t", after=0, on_gap=refuse)
        assert list(islice(tail, 2 * RECORDS)) == before
        with pytest.raises(LookupError):
            next(tail)
        with pytest.raises(LookupError):
            client.read("t", on_gap=refuse)
        assert client.read("t", limit=2 * RECORDS, on_gap=refuse) == before
