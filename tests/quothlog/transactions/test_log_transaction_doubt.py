"""Transactions of which it is not known yet whether they are stored, and logs with a part of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.peers import refused
from kit.broker.transactions import LARGE, PARTS, SMALL, WHOLE, Loader, sizes, stage_all
from kit.clocks import HOUR, ManualClock
from kit.disk.doubles import Died, FaultyDisk
from kit.disk.logs import OpenLog, copy, encoded, outcome_of, put, segments, values
from quothlog import LogOptions
from quothlog.backup.backup import Archiver
from quothlog.backup.restore import restore
from quothlog.file_format import TABLE_ENTRY
from quothlog.transactions.commit import Commit
from quothlog.transactions.table import APPLICATIONS_MAX, VERSIONS_MAX, StoredTransaction, TransactionTable
from quothwire import batch
from quothwire.batch import Flag
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.transaction import StagedPart, producer_of


def placed(loader: Loader, parts: list[StagedPart]) -> Commit | None:
    """Begin to publish, up to where it may still fail; None for a small one."""
    outcome = loader.own.publish(loader.id, 1, parts)
    if isinstance(outcome, Commit):
        outcome.prepare()
        loader.own.place(outcome)
        return outcome
    return None


@sizes
def test_a_transaction_is_not_reported_as_stored_before_it_is_synced(
    open_log: OpenLog, options: LogOptions
) -> None:
    """Queries, stages and aborts of it have to wait; other transactions may be staged."""
    log = open_log(options=options)
    loader = Loader(log)
    publication = placed(loader, stage_all(loader))
    for ask in (loader.own.standing, loader.own.abort):
        with refused("busy"):
            ask(loader.id, 1)
    for version in (0, 1):
        with refused("busy"):
            loader.stage(version, 0, PARTS[0])
    with refused("busy"):
        loader.own.standing(loader.id, 2)  # it tells the newest version
    loader.stage(2, 0, PARTS[0])
    assert loader.own.standing(producer_of("another"), 1).state == "unknown"
    if publication is not None:
        publication.commit()
        loader.own.adopt(publication)
    log.sync()
    assert loader.own.standing(loader.id, 1).state == "published"
    with refused("already_published"):
        loader.stage(1, 0, PARTS[0])


def test_abort_removes_nothing_of_a_transaction_that_may_be_stored(
    open_log: OpenLog, directory: Path, tmp_path: Path
) -> None:
    """Its files have not got their names yet, and the next opening gives them those."""
    disk = FaultyDisk()
    log = open_log(options=LARGE, filesystem=disk)
    loader = Loader(log)
    publication = placed(loader, stage_all(loader))
    assert publication is not None
    disk.fail("rename", 4)  # behind the plan and the segment that decides
    with pytest.raises(OSError, match="names of a transaction's segments") as problem:
        publication.commit()
    published = loader.own.withdraw(publication, problem.value)
    assert published.code == "storage_failed"
    disk.heal()
    for ask in (loader.own.abort, loader.own.standing):
        with refused("storage_failed"):
            ask(loader.id, 1)
    log.close()
    other = open_log(copy(directory, tmp_path / "later"), options=LARGE)
    assert values(other) == WHOLE
    assert Loader(other).own.standing(loader.id, 1).state == "published"


def test_an_empty_segment_that_could_not_be_removed_goes_with_those_behind_it(open_log: OpenLog) -> None:
    """Else the next opening would take it for the first one, with all removed records behind it."""
    disk = FaultyDisk()
    log = open_log(options=LARGE, filesystem=disk)
    loader = Loader(log)
    publication = placed(loader, stage_all(loader))
    assert publication is not None
    publication.commit()
    disk.fail("remove")
    loader.own.adopt(publication)
    assert disk.struck_any
    disk.heal()
    assert values(log) == WHOLE
    assert log.trim(POINTER_MAX)[0] == log.first_ordinal == len(WHOLE)
    log.close()
    assert open_log(options=LARGE).first_ordinal == len(WHOLE)


def test_transaction_without_a_successful_sync_is_reported_as_failed(open_log: OpenLog) -> None:
    disk = FaultyDisk()
    log = open_log(options=SMALL, filesystem=disk)
    loader = Loader(log)
    placed(loader, stage_all(loader))
    disk.fail("sync")
    with refused("storage_failed"):
        log.sync()
    for version in (1, 2):
        with refused("storage_failed"):
            loader.own.abort(loader.id, version)
    with refused("storage_failed"):
        loader.own.standing(loader.id, 1)


def test_interrupted_publication_shortens_no_expiry(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Its files say where they were to stand, and no more when they were begun."""
    options, disk = LogOptions(size_limit=3_000), FaultyDisk()
    log = open_log(options=options, filesystem=disk)
    loader = Loader(log)
    last = loader.stage(1, 1, PARTS[1])
    clock.step(30 * HOUR)
    first = loader.stage(1, 0, PARTS[0])
    publication = placed(loader, [first, last])
    assert publication is not None
    disk.fail("create", 2, Died())  # behind the plan, instead of the segment that decides
    with pytest.raises(Died):
        publication.commit()
    loader = Loader(open_log(copy(directory, tmp_path / "crashed"), options=options))
    clock.step(HOUR)
    assert list(loader.own.expire()) == []
    assert loader.publish(1, [first, last]).count == 24


def test_transaction_is_completed_without_a_staged_file_that_lost_its_batches(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """The part is published as it is, and the transaction has its end."""
    options = LogOptions(size_limit=3_000)
    log = open_log(options=options)
    Loader(log).stage(1, 0, PARTS[0] + PARTS[1])
    later = copy(directory, tmp_path / "later")
    _, *rest = sorted(later.glob("*.staged"))
    assert len(rest) == 1
    data = rest[0].read_bytes()
    rest[0].write_bytes(data[:96] + bytes(len(data) - 96))
    clock.reboot()
    loader = Loader(open_log(later, options=options))
    _, batches, records, _ = loader.own.standing(loader.id, 1).staged
    published = loader.publish(1, [StagedPart(0, 7, batches, records)])
    assert (published.count, len(values(loader.log))) == (records, records)
    extract = loader.log.fetch(published.last - 1)
    assert extract is not None
    *_, last = batch.split(extract.data, loader.log.log_id)
    assert batch.parse_header(last, loader.log.log_id).flags & Flag.END


def test_snapshot_of_the_transaction_table_has_no_application_beyond_its_limit(
    open_log: OpenLog, clock: ManualClock
) -> None:
    """Or the next new one would make two others go, of which one was not silent."""
    applications = TransactionTable()
    for number in range(APPLICATIONS_MAX + 1):
        applications.add(number * 2 + 1, StoredTransaction(0, number + 1, 1, 1))
    for version in range(VERSIONS_MAX + 5):
        applications.add(7, StoredTransaction(version + 1, 5_000 + version, 1, 1))
    rows = list(applications.rows())
    applications.commit()
    assert rows == list(applications.rows())
    assert len(rows) == APPLICATIONS_MAX
    assert max(len(row.entries) for row in rows) == VERSIONS_MAX * TABLE_ENTRY.size


@sizes
def test_backup_of_the_present_never_has_a_part_of_a_transaction(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock, options: LogOptions
) -> None:
    """Wherever in it the moment lies at which the backup of all topics began."""
    log = open_log(options=options)
    loader = Loader(log)
    log.append(b"before")
    published = loader.publish(1, stage_all(loader))
    log.append(b"after")
    clock.step(HOUR)
    for until in range(published.first, published.last + 1, 3):
        archiver = Archiver(directory, log.log_id, tmp_path / f"{until}", until, exact=False, clock=clock)
        assert list(archiver.run(lambda _bytes: None)) == []
        assert archiver.archive.records == 1 + len(WHOLE), until - published.first
    archiver = Archiver(directory, log.log_id, tmp_path / "x", published.first - 1, exact=False, clock=clock)
    assert list(archiver.run(lambda _bytes: None)) == []
    assert archiver.archive.records == 1


@pytest.mark.parametrize("how", ["cut", "damaged"])
def test_producers_and_applications_are_known_behind_a_large_transaction(
    open_log: OpenLog, directory: Path, tmp_path: Path, clock: ManualClock, how: str
) -> None:
    """Its segments have no table of producers: without an index, those before it are used."""
    log = open_log(options=LARGE)
    other = Loader(log, "other")
    kept = other.publish(1, [other.stage(1, 0, [[b"of another"]])])
    retried = encoded([b"x"], 5, 1)
    (stored,) = put(log, retried)
    loader = Loader(log)
    published = loader.publish(1, stage_all(loader))
    later = tmp_path / "later"
    if how == "cut":
        archiver = Archiver(directory, log.log_id, tmp_path / "to", published.last - 1, exact=True)
        assert list(archiver.run(lambda _bytes: None)) == []
        later.mkdir()
        restore(tmp_path / "to", archiver.archive, later, log.log_id, clock=clock)
    else:
        copy(directory, later)
        for path in later.glob("*.idx"):
            path.unlink()
        last = segments(later)[-1]
        last.write_bytes(bytes(96) + last.read_bytes()[96:])
    log = open_log(later, options=LARGE)
    again = outcome_of(log, retried)
    assert not isinstance(again, str), again
    assert (again.first, again.duplicate) == (stored.first, True)
    assert Loader(log, "other").publish(1, []).first == kept.first
