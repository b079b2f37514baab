"""Transactions on a log: staged by many, stored all or none, once, with pointers that follow each other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.broker.transactions import (
    LARGE,
    LOADER,
    PARTS,
    SMALL,
    WHOLE,
    Loader,
    leftovers,
    sizes,
    stage_all,
    staged,
)
from kit.clocks import DAY, HOUR, ManualClock
from kit.disk.damage import MAP, NO_MAP, flip, replace_headers
from kit.disk.logs import OpenLog, copy, encoded, fill, outcome_of, segments, values
from quothlog import Log, LogOptions
from quothlog.recovery import verify
from quothlog.transactions.commit import Commit
from quothlog.transactions.table import VERSIONS_MAX
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.protocol.transaction import StagedPart, producer_of

# -- what is stored -----------------------------------------------------------------------------------------


@sizes
def test_parts_are_stored_in_the_order_in_which_they_are_named(
    open_log: OpenLog, directory: Path, options: LogOptions
) -> None:
    """Their pointers follow each other without a hole, and only the last batch says that it is the last."""
    log = open_log(options=options)
    before = fill(log, 3)
    loader = Loader(log)
    parts = stage_all(loader)
    loader.stage(1, 2, [[b"by a task that died"]], attempt=8)
    assert values(log) == [record.value for record in before]
    published = loader.publish(1, parts[::-1])
    log.append(b"after")
    found = list(log.read())
    ours = found[3:-1]
    assert [record.value for record in ours] == [v for part in PARTS[::-1] for b in part for v in b]
    assert [record.pointer for record in ours] == list(range(published.first, published.last + 1))
    assert (published.count, published.duplicate, log.end_ordinal) == (len(WHOLE), False, len(WHOLE) + 4)
    headers = [
        batch.parse_header(raw, log.log_id)
        for at in _cursors(log)
        if (extract := log.fetch(at, records_max=1)) is not None
        for raw in batch.split(extract.data, log.log_id)
    ]
    marked = [header for header in headers if header.flags & Flag.TRANSACTION]
    assert [bool(header.flags & Flag.END) for header in marked] == [False] * 19 + [True]
    assert {(header.producer, header.sequence) for header in marked} == {(producer_of(LOADER), 2)}
    assert leftovers(directory) == []
    summaries = list(verify.summaries(directory))
    assert sum(one.records for one in summaries) == log.end_ordinal
    assert [one.damages for one in summaries] == [()] * len(summaries)


def _cursors(log: Log) -> Iterator[int]:
    after = 0
    while (extract := log.fetch(after, records_max=1)) is not None:
        yield after
        after = extract.next


def test_a_small_transaction_is_no_segment_of_its_own(open_log: OpenLog, directory: Path) -> None:
    log = open_log(options=SMALL)
    loader = Loader(log)
    for version in range(20):
        loader.publish(version, stage_all(loader, version))
    assert len(segments(directory)) == 1
    assert values(log) == WHOLE * 20


def test_large_transaction_has_segments_of_the_usual_size(open_log: OpenLog, directory: Path) -> None:
    """Small files are merged, and the empty segment before them is not kept."""
    log = open_log(options=LARGE)
    loader = Loader(log)
    for version in range(3):
        loader.publish(version, stage_all(loader, version))
    used = [path.stat().st_size for path in segments(directory)[:-1]]
    assert len(used) == 9, used
    assert min(used) > 2_000, used
    assert max(used) <= 5_000 + 64, used
    assert {path.suffix for path in directory.iterdir() if path.name != "lock"} == {".seg", ".idx"}


def test_transaction_with_more_records_than_a_segment_holds_is_divided(
    open_log: OpenLog, directory: Path
) -> None:
    """`count_limit` holds for what is staged, merged and appended."""
    log = open_log(options=LogOptions(count_limit=10))
    loader = Loader(log)
    loader.publish(1, stage_all(loader))
    loader.publish(2, [loader.stage(2, 0, [[b"a"] * 4] * 2)])
    loader.publish(3, [loader.stage(3, 0, [[b"b"] * 4] * 2)])
    counts = [one.records for one in verify.summaries(directory)]
    assert max(counts) <= 10, counts
    assert sum(counts) == len(WHOLE) + 16


@sizes
def test_a_transaction_is_invisible_and_blocks_appends_until_it_is_synced(
    open_log: OpenLog, options: LogOptions
) -> None:
    """Other appends have to wait; what they had appended before is visible."""
    log = open_log(options=options)
    loader = Loader(log)
    log.append(b"before")
    outcome = loader.own.publish(loader.id, 1, stage_all(loader))
    if isinstance(outcome, Commit):
        outcome.prepare()
        log.append(b"beside it")  # the long part delays no other request
        loader.own.place(outcome)
    seen = values(log)
    assert seen in ([b"before"], [b"before", b"beside it"])
    assert log.appender.is_publishing
    assert outcome_of(log, encoded([b"x"])) == "busy"
    with refused("busy"):
        loader.own.publish(loader.id, 2, [])
    if isinstance(outcome, Commit):
        log.appender.finish_sync(log.appender.begin_sync())
        with refused("busy"):
            log.roll()
        outcome.commit()
        assert values(log) == seen
        loader.own.adopt(outcome)
    else:
        log.sync()
    assert not log.appender.is_publishing
    assert values(log) == seen + WHOLE
    log.append(b"after")
    assert values(log) == [*seen, *WHOLE, b"after"]


# -- once ---------------------------------------------------------------------------------------------------


@sizes
def test_transaction_version_is_stored_once(
    open_log: OpenLog, clock: ManualClock, options: LogOptions
) -> None:
    """The same pointers, whatever parts are named, also when retention has removed it long ago."""
    log = open_log(options=options)
    loader = Loader(log)
    first = loader.publish(3, stage_all(loader, 3))
    log.append(b"x")
    log.roll()
    log.trim(log.newest + 1)
    clock.step(30 * DAY)
    log.close()
    log = open_log(options=options)
    loader = Loader(log)
    assert loader.publish(3, []) == replace(first, duplicate=True)
    assert loader.own.standing(loader.id, 3)[:3] == ("published", first.first, len(WHOLE))
    with refused("already_published"):
        loader.stage(3, 0, [[b"too late"]])
    with refused("forgotten_sequence"):
        loader.stage(2, 0, [[b"backwards"]])
    with refused("forgotten_sequence"):
        loader.publish(2, [])
    assert loader.own.abort(loader.id, 3).state == "published"
    assert (values(log), log.end_ordinal) == ([], len(WHOLE) + 1)


def test_versions_of_an_application_are_published_one_after_another(open_log: OpenLog) -> None:
    loader = Loader(open_log(options=LARGE))
    large = loader.own.publish(loader.id, 3, stage_all(loader, 3))
    assert isinstance(large, Commit)
    small = [loader.stage(4, 0, [[b"small"]])]
    with refused("busy"):
        loader.publish(4, small)
    loader.carry_out(large)
    with refused("newest_differs"):
        loader.own.publish(loader.id, 4, small, newest=2)
    loader.publish(4, small)
    assert loader.own.standing(loader.id, 3).newest == 4


def test_the_last_versions_of_an_application_are_known(open_log: OpenLog) -> None:
    log = open_log()
    loader = Loader(log)
    published = [
        loader.publish(version, [loader.stage(version, 0, [[b"%d" % version]])])
        for version in range(VERSIONS_MAX + 2)
    ]
    log.close()
    log = open_log()
    loader = Loader(log)
    for version in (0, 1):
        with refused("forgotten_sequence"):
            loader.publish(version, [])
    assert [loader.publish(2 + i, []).first for i in range(VERSIONS_MAX)] == [
        one.first for one in published[2:]
    ]
    assert loader.own.standing(loader.id, 1_000).newest == VERSIONS_MAX + 1


# -- what is staged -----------------------------------------------------------------------------------------


def test_repeated_batch_is_staged_once(open_log: OpenLog) -> None:
    """Byte for byte the same; another one under its number is refused, and so is one behind a gap."""
    log = open_log()
    loader = Loader(log)
    first, second = staged([b"1"], 1), staged([b"2"], 1)
    for number, raw in ((0, first), (0, first), (1, second), (0, first), (1, second)):
        published = loader.own.stage(loader.id, 1, 0, 7, number, raw)
    assert (published.batches, published.records, published.bytes) == (2, 2, len(first) + len(second))
    with refused("sequence_reused"):
        loader.own.stage(loader.id, 1, 0, 7, 0, second)
    with refused("out_of_sequence"):
        loader.own.stage(loader.id, 1, 0, 7, 3, second)
    assert loader.own.staged_bytes == len(first) + len(second)


def test_batch_that_does_not_belong_to_the_transaction_is_refused(open_log: OpenLog) -> None:
    whole = staged([b"whole"], 1)
    last = int(Flag.TRANSACTION | Flag.END)
    log = open_log()
    loader = Loader(log)
    for raw in (
        encoded([b"plain"]),
        encoded([b"of a producer"], producer_of(LOADER), 2),
        staged([b"of another version"], 2),
        staged([b"of another application"], 1, "another"),
        batch.claimed(whole, batch.parse_header(whole, 0), producer_of(LOADER), 2, last),
        whole[:-8],
        whole[:-1] + b"x",
    ):
        with refused("bad_batch"):
            loader.own.stage(loader.id, 1, 0, 7, 0, raw)
    assert loader.own.standing(loader.id, 1).state == "unknown"
    assert outcome_of(log, whole) == "bad_batch", "a batch of a transaction is not appended"


def test_unchecked_staged_batches_are_known_and_can_be_published(open_log: OpenLog, directory: Path) -> None:
    checked, raw = (staged([b"x", b"y"], 1, headers=[one, b""]) for one in (MAP, NO_MAP))
    log = open_log()
    loader = Loader(log)
    loader.own.stage(loader.id, 1, 0, 7, 0, checked)
    log.close()
    replace_headers(directory.glob("*.staged"), 0)
    log = open_log()
    loader = Loader(log)
    assert loader.own.stage(loader.id, 1, 0, 7, 0, raw).batches == 1, "a retry"
    with refused("bad_batch"):
        loader.own.stage(loader.id, 1, 0, 7, 1, raw)
    loader.own.publish(loader.id, 1, [StagedPart(0, 7, 1, 2)])
    log.sync()
    assert [(one.value, one.raw_headers) for one in log.read()] == [(b"x", NO_MAP), (b"y", b"")]


@pytest.mark.parametrize("restart", [False, True])
def test_missing_or_different_parts_are_reported(open_log: OpenLog, restart: bool) -> None:
    """Nothing is published, and what is there stays."""
    log = open_log()
    loader = Loader(log)
    parts = stage_all(loader)
    if restart:
        log.close()
        loader = Loader(open_log())
    for row in ((0, 7, 5, 12), (0, 7, 4, 13), (0, 7, 3, 9), (0, 8, 4, 12), (9, 7, 4, 12)):
        wrong = StagedPart(*row)
        text = f"not_staged: .*part {wrong.part} by attempt {wrong.attempt:016x}"
        with pytest.raises(QuothError, match=text):
            loader.publish(1, [wrong, *parts[1:]])
    assert loader.own.standing(loader.id, 1).staged[:3] == (5, 20, 60)
    assert loader.publish(1, parts).count == 60


@sizes
def test_staged_batches_survive_the_process(
    open_log: OpenLog, directory: Path, tmp_path: Path, options: LogOptions, rng: random.Random
) -> None:
    """Staging goes on where it was, behind a batch that was broken off."""
    log = open_log(options=options)
    loader = Loader(log)
    for part, batches in enumerate(PARTS):
        loader.stage(1, part, batches[:2])
    crashed = copy(directory, tmp_path / "crashed")
    for path in crashed.glob("*.staged"):
        with path.open("ab") as file:
            file.write(staged([b"torn" * 50], 1)[: rng.randrange(250)])
    log = open_log(crashed, options=options)
    loader = Loader(log)
    assert loader.own.standing(loader.id, 1).staged[:3] == (5, 10, 30)
    parts = stage_all(loader)
    assert loader.publish(1, parts).count == len(WHOLE)
    assert values(log) == WHOLE


def test_after_a_loss_of_power_staged_bytes_are_verified(
    open_log: OpenLog, clock: ManualClock, directory: Path
) -> None:
    """Batches that do not check are missing, with all that follows them, and publishing says so."""
    log = open_log()
    loader = Loader(log)
    parts = stage_all(loader)
    log.close()
    broken = min(directory.glob("*.staged"))
    flip(broken, broken.stat().st_size * 2 // 3)
    clock.reboot()
    loader = Loader(open_log())
    with pytest.raises(QuothError, match=r"2 batches of 4, 6 records of 12") as told:
        loader.publish(1, parts)
    assert told.value.code == "not_staged"
    again = loader.stage(1, 0, PARTS[0], attempt=8)
    assert loader.publish(1, [again, *parts[1:]]).count == len(WHOLE)
    assert values(loader.log) == WHOLE
    assert leftovers(directory) == []


def test_attempt_without_its_first_file_is_ignored(open_log: OpenLog, directory: Path) -> None:
    log = open_log(options=LogOptions(size_limit=300))
    loader = Loader(log)
    part = loader.stage(1, 0, PARTS[0])
    log.close()
    min(directory.glob("*.staged")).unlink()
    loader = Loader(open_log())
    with refused("not_staged"):
        loader.publish(1, [part])


@pytest.mark.parametrize("restart", [False, True])
def test_staged_batches_are_removed_by_an_abort_or_an_empty_publish(
    open_log: OpenLog, directory: Path, restart: bool
) -> None:
    log = open_log()
    loader = Loader(log)
    stage_all(loader)
    loader.stage(2, 0, [[b"of the next version"]])
    if restart:
        log.close()
        loader = Loader(open_log())
    standing = loader.own.abort(loader.id, 1)
    assert (standing.state, *standing.staged[:3]) == ("unknown", 5, 20, 60)
    assert len(leftovers(directory)) == 1
    assert loader.own.abort(loader.id, 1).staged == (0, 0, 0, 0)
    assert loader.publish(2, [StagedPart(0, 7, 1, 1)]).count == 1
    stage_all(loader, 3)
    assert loader.own.publish(loader.id, 3, []) is None
    assert leftovers(directory) == []
    assert loader.own.standing(loader.id, 3).state == "unknown"


@pytest.mark.parametrize("restart", [False, True])
def test_staged_batches_expire_unless_more_are_added(
    open_log: OpenLog, directory: Path, clock: ManualClock, restart: bool
) -> None:
    """`staged_max_age` after the last batch; what is added to stays."""
    log = open_log()
    loader = Loader(log)
    assert loader.own.due() is None
    stage_all(loader)
    loader.stage(2, 0, [[b"1"]])
    clock.step(20 * HOUR)
    loader.stage(2, 0, [[b"1"], [b"2"]])
    clock.step(12 * HOUR)
    if restart:
        log.close()
        loader = Loader(open_log())
    due = loader.own.due()
    assert due is not None
    assert due <= clock.now()
    assert [(key.version, amount.batches) for key, amount in loader.own.expire()] == [(1, 20)]
    assert len(leftovers(directory)) in (1, 2)
    assert loader.own.due() is not None
    assert loader.publish(2, [StagedPart(0, 7, 2, 2)]).count == 2
    assert list(loader.own.expire()) == []
