"""Every kind of harm at every place of a data directory, and some of them together.

Whatever was done: the broker serves, no record is wrong or there twice, each batch that is whole and in its
place is read, lost ones are reported, damaged bytes are kept, other topics are as they were, and publishing
goes on above all earlier pointers. A look at the files without the broker shows the same. QUOTH_LONG=1
tries much more; QUOTH_SEED repeats a run that failed.
"""

from __future__ import annotations

import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from xxhash import xxh3_64_intdigest

import quoth
from kit.broker.brokers import StartBroker
from kit.client.reading import WAYS, Way, by_portions
from kit.disk.corruptions import (
    ACTIVE,
    BLOWS,
    EVERY_BLOW,
    HARMLESS,
    MISPLACED,
    PLACES,
    SETTINGS,
    TOO_EARLY,
    Harm,
    Left,
    Scene,
    foreign_newest,
)
from kit.disk.damage import flip, overwrite, stored_batches
from kit.disk.logs import segments
from kit.machine.processes import needs_proc, peak_resident_bytes, resident_bytes
from kit.scale import LONG, times
from quoth import Gap, Message
from quothd import Broker
from quothlog import file_format
from quothlog.recovery.verify import records, summaries
from quothwire import batch
from quothwire.errors import Damaged
from quothwire.record import Record

END = b"published behind the damage"
MEMORY_MAX = 100 * 2**20
CHANGED_SETTINGS = "one byte of the settings changed"


# -- what is to be true afterwards --------------------------------------------------------------------------


class Look(NamedTuple):
    """Records in the files, and the pointers between which something is wrong."""

    records: list[tuple[int, bytes]]
    wrong: list[tuple[int, int]]


def look(folder: Path) -> Look | None:
    """Look at a topic's folder without a broker; None where no segment says which log it belongs to."""
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}
    try:
        told = list(records(folder))
        segments_told = list(summaries(folder))
        list(summaries(folder, quick=True))
    except FileNotFoundError:
        assert not segments(folder)
        return None
    except Damaged:
        return None
    finally:
        after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}
        assert after == before
    rows = [(one.pointer, one.value) for one in told if isinstance(one, Record)]
    pointers = [pointer for pointer, _ in rows]
    assert all(one < other for one, other in pairwise(pointers))
    wrong, last = [], 0
    for one in told:
        if isinstance(one, Record):
            last = one.pointer
        else:
            wrong.append((last, [*pointers, 2**60][bisect_right(pointers, last)]))
    assert bool(wrong) == any(one.damages or one.unfinished for one in segments_told)
    return Look(rows, wrong)


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def bear(
    left: Left, directory: Path, harms: Mapping[str, Harm], rng: random.Random, *, looks: bool = True
) -> set[int]:
    """Damage a copy, serve it, read it in every way and look at the files; returns the lost batches."""
    print(*harms, sep=", ")
    scene = Scene(left, directory)
    for harm in harms.values():
        harm(scene, rng)
    whole, before, others = scene.whole(), files(scene.folder), files(scene.other)
    blocks = scene.has_block(0), scene.has_block(2)
    at_first = look(scene.folder) if looks else None
    memory = resident_bytes(os.getpid())
    with Broker(directory) as broker, quoth.connect(broker) as client:
        ack = client.publish("t", END)
        assert ack.first > left.published[-1].pointer
        told = [way(client, "t", END) for way in WAYS]
        assert client.read("other") == left.others
        assert bool(client.topic("t").problem) == any(name in (*SETTINGS, CHANGED_SETTINGS) for name in harms)
    assert resident_bytes(os.getpid()) - memory < MEMORY_MAX
    for way, (found, gaps) in zip(WAYS, told, strict=True):
        assert found == told[0][0], way
        assert_told(left, whole, found, gaps, way, *blocks)
    found, gaps = told[0]
    assert_kept(others, files(scene.other), changes=False)
    assert_kept(before, files(scene.folder))
    there = {left.batch_of[message.pointer] for message in found}
    if there == whole:  # else there are several ways to read as much, and each may go another one
        assert_seen(left, found, gaps, at_first)
        at_last = look(scene.folder) if looks else None
        end = Message("t", ack.first, END, None, {})
        assert_seen(left, [*found, end], gaps, at_last)
    shutil.rmtree(directory)
    return {*range(len(left.written))} - there


def assert_told(
    left: Left, whole: set[int], found: list[Message], gaps: list[Gap], way: Way, first: bool, last: bool
) -> None:
    """Check that this is all that is whole, and an account of the rest.

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
    stretches = sorted({(gap.after, gap.next) for gap in gaps})  # the same one may have both reasons
    assert all(one[1] <= other[0] + 1 for one, other in pairwise(stretches)), gaps
    for gap in gaps:
        assert gap.reason == "damaged" or not first
        assert not [message for message in found if gap.after < message.pointer < gap.next]
    missed = [(batches[one.pointer], one.pointer) for one in left.published if batches[one.pointer] in lost]
    for number, pointer in missed:
        times_told = len([1 for after, following in stretches if after < pointer < following])
        assert times_told == 1 or (times_told == 0 and number in hidden), (number, gaps)
    if way is by_portions:
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
        aside = {int(other.split(".")[2]): torn for other, torn in others.items()}
        kept = [start for start, torn in aside.items() if data[start:] == torn]
        if kept:
            assert name not in after or now == data[: kept[0]], name
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


def assert_seen(left: Left, found: list[Message], gaps: list[Gap], seen: Look | None) -> None:
    """Check that a look at the files, without indexes, shows all that a reader got."""
    if seen is None:
        return
    told = [(message.pointer, message.value) for message in found]
    if seen.records == told:
        for gap in gaps:
            assert [one for one in seen.wrong if one[0] <= gap.after and one[1] >= gap.next], (
                gap,
                seen.wrong,
            )
    else:
        assert {*told} < {*seen.records} <= {*told, *((one.pointer, one.value) for one in left.published)}


# -- the matrix ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_harm_of_any_kind_at_any_place(left: Left, tmp_path: Path, rng: random.Random, place: str) -> None:
    for how in rng.sample([*BLOWS], times(2, len(BLOWS))):
        for turn in range(times(1, 100)):
            name = f"{how} {place}"
            bear(left, tmp_path / f"{how} {turn}", {name: EVERY_BLOW[name]}, rng)


@pytest.mark.parametrize("harm", [*HARMLESS, *TOO_EARLY])
def test_harm_that_costs_no_record(left: Left, tmp_path: Path, rng: random.Random, harm: str) -> None:
    assert bear(left, tmp_path / "data", {harm: {**HARMLESS, **TOO_EARLY}[harm]}, rng) == set()


def test_newest_segment_of_another_topic_costs_no_record(
    left: Left, tmp_path: Path, rng: random.Random
) -> None:
    """A look without the broker takes the log's id from the newest segment, the wrong one here."""
    harms = {"a newest segment of another topic": foreign_newest}
    assert bear(left, tmp_path / "data", harms, rng, looks=False) == set()


@pytest.mark.parametrize("harm", MISPLACED)
def test_batches_and_segments_that_are_not_in_their_place(
    left: Left, tmp_path: Path, rng: random.Random, harm: str
) -> None:
    bear(left, tmp_path / "data", {harm: MISPLACED[harm]}, rng)


@pytest.mark.parametrize("chunk", range(times(2, 60)))
def test_several_harms_together(left: Left, tmp_path: Path, rng: random.Random, chunk: int) -> None:
    for turn in range(times(8, 150)):
        chosen = dict(rng.sample([*EVERY_BLOW.items()], rng.randint(1, 2)))
        chosen |= dict(rng.sample([*chain(HARMLESS.items(), MISPLACED.items())], rng.randrange(2)))
        if rng.random() < 0.2:
            chosen |= dict(rng.sample([*SETTINGS.items()], 1))
        bear(left, tmp_path / f"{chunk} {turn}", dict(rng.sample([*chosen.items()], len(chosen))), rng)


# -- the settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", SETTINGS)
def test_settings_that_cannot_be_read_cost_no_record(
    left: Left, tmp_path: Path, rng: random.Random, harm: str
) -> None:
    for turn in range(times(2, 50)):
        assert bear(left, tmp_path / f"{turn}", {harm: SETTINGS[harm]}, rng) == set()


def test_any_changed_byte_of_the_settings_costs_no_record(
    left: Left, tmp_path: Path, rng: random.Random
) -> None:
    size = (next(left.directory.glob("topics/t~*")) / "topic.json").stat().st_size
    for offset in range(size) if LONG else rng.sample(range(size), 12):
        harm = partial(flip_settings, offset)
        assert bear(left, tmp_path / f"{offset}", {CHANGED_SETTINGS: harm}, rng) == set()


def flip_settings(offset: int, scene: Scene, rng: random.Random) -> None:
    """Change one byte of the settings."""
    flip(scene.settings, offset, rng.randrange(1, 256))


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


# -- sizes that are not true --------------------------------------------------------------------------------

HUGE = 2**27


def batch_of_any_size(folder: Path, log_id: int, body_bytes: int) -> None:
    """The last batch says in a header that checks that it is so large."""
    one = stored_batches(folder.parent, log_id)[-1]
    overwrite(one.path, one.start, batch.stamp(one.header._replace(body_bytes=body_bytes), log_id))


def sealed(data: bytes) -> bytes:
    """Bytes that end in a checksum of what is before it, with that checksum."""
    return data[:-8] + xxh3_64_intdigest(data[:-8]).to_bytes(8, "little")


def block_of_any_size(folder: Path, log_id: int) -> None:
    """Header blocks say that the tables of their producers are endless."""
    for path in segments(folder):
        head = path.read_bytes()[: file_format.BLOCK_BYTES]
        overwrite(path, 0, sealed(head[:72] + (2**60).to_bytes(8, "little") + head[80:]))


def index_of_any_size(folder: Path, log_id: int) -> None:
    """Indexes say that they have no end of entries."""
    for path in folder.glob("*.idx"):
        data = path.read_bytes()
        path.write_bytes(sealed(data[:56] + (2**40).to_bytes(8, "little") + data[64:]))


def longer(folder: Path, suffix: str) -> None:
    """Files go on with zeros that take no room on the disk."""
    for path in folder.glob(f"*{suffix}"):
        os.truncate(path, HUGE)


CLAIMS: dict[str, Callable[[Path, int], None]] = {
    "largest batch": lambda folder, log_id: batch_of_any_size(folder, log_id, 2**24 - 64),
    "batch beyond any": lambda folder, log_id: batch_of_any_size(folder, log_id, 2**32 - 8),
    "header block": block_of_any_size,
    "index": index_of_any_size,
    "long segments": lambda folder, log_id: longer(folder, ".seg"),
    "long indexes": lambda folder, log_id: longer(folder, ".idx"),
    "long settings": lambda folder, log_id: longer(folder, "topic.json"),
    "nothing": lambda folder, log_id: None,
}


@needs_proc
def test_sizes_that_are_not_true_take_no_memory(start_broker: StartBroker, tmp_path: Path) -> None:
    """Each in a topic of its own, all of them in one broker."""
    broker = start_broker(worker_timeout=0.1, workers_max=2)
    logs: dict[str, int] = {}
    with quoth.connect(broker.url) as client:
        for topic in CLAIMS:
            logs[topic] = client.create_topic(topic, count_limit=2).log
            for number in range(4):
                client.publish(topic, b"%d" % number)
    assert broker.terminate() == 0
    for topic, log_id in logs.items():
        (folder,) = broker.topics_directory.glob(f"*~{log_id:016x}")
        CLAIMS[topic](folder, log_id)
    with quoth.connect(broker.restart().url) as client:
        for topic in CLAIMS:
            client.publish(topic, END)
            for way in WAYS:
                found, _ = way(client, topic, END)
                assert [one.value for one in found] == [b"0", b"1", b"2", b"3"][
                    : 3 if "batch" in topic else 4
                ]
    peak = peak_resident_bytes(broker.pid)
    print(f"{peak:,} bytes")
    assert peak < MEMORY_MAX
