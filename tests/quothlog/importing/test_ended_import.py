"""An import that was ended in any way leaves no half target; run again, it has the same result."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from kit.disk.doubles import CHANGES, Died, FaultyDisk
from kit.disk.logs import segments
from kit.inherited.appendix_files import T, put_segment, put_topics, rows
from kit.inherited.imports import import_first, import_into, imported, only_log
from kit.scale import LONG
from quothlog import Log, LogOptions
from quothlog.importing import log_import, work_folder
from quothlog.importing.log_import import BeginAnew, LogImport
from quothlog.slabs import SlabWriter
from quothlog.storage.clock import SystemClock
from quothwire.errors import QuothError, RequestError

DAY = 86_400_000_000
SMALL = LogOptions(count_limit=4, synced_reads=True)


class CountingDisk(FaultyDisk):
    """A disk on which making a directory is a step, too."""

    def __init__(self) -> None:
        super().__init__(syncs=False)

    def make_directory(self, path: Path) -> None:
        if not path.is_dir():
            self.note("create", path)
        super().make_directory(path)


class Ends:
    """An import that is ended before each of its changes, and run again."""

    def __init__(self, tmp_path: Path, source: Path) -> None:
        self.source = source
        self.whole = tmp_path / "whole" / "new"
        self._tmp_path = tmp_path
        self.reports = import_into(self.whole, source)
        self.expected = imported(self.whole)

    def try_all(self, end: Callable[[FaultyDisk, int], None], first: int = 1, every: int = 1) -> int:
        """End it before every change from the first on; returns the number of changes of an import.

        every: leave out others, unless this is the long form.
        """
        for nth in count(1, 1) if LONG else count(first, every):
            disk = CountingDisk()
            end(disk, nth)
            target = self._tmp_path / f"target-{nth}" / "new"
            is_ended = self._run(target, disk)
            if not disk.struck_any:
                assert not is_ended
                return nth
            work = target.with_name("new.importing")
            if target.exists():
                self._check_copy(target)
            if not target.exists() or (work / "import.json").exists():
                assert import_into(target, self.source, filesystem=CountingDisk()) == self.reports
                assert not work.exists()
            assert imported(target) == self.expected, f"after an end at change {nth}"
            shutil.rmtree(target.parent)
        raise AssertionError("unreachable")

    def _run(self, target: Path, disk: FaultyDisk) -> bool:
        """Run the first one; returns True if it was ended."""
        with suppress(Died, OSError, QuothError):
            import_into(target, self.source, filesystem=disk)
            return False
        return True

    def changes(self) -> FaultyDisk:
        """Import once, undisturbed; returns the disk that has written down the changes."""
        disk = CountingDisk()
        import_into(self._tmp_path / "undisturbed" / "new", self.source, filesystem=disk)
        return disk

    def _check_copy(self, target: Path) -> None:
        """Check that a target is whole as soon as it is there: a copy of it, since opening changes it."""
        copy = shutil.copytree(target, target.parent / "copy" / "new")
        assert imported(copy) == self.expected
        shutil.rmtree(copy.parent)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of four records."""
    monkeypatch.setattr(log_import, "_OPTIONS", SMALL)


@pytest.fixture
def topics(tmp_path: Path, small: None) -> Ends:
    """Two topics of Poe: one of several segments on both sides, which overlap, and one that is torn."""
    first, second = rows(6, step=DAY), rows(3, begin=T + 6 * DAY, step=1)
    first.append((T + 6 * DAY + 3, b"late"))
    source = tmp_path / "source"
    put_topics(source, {"orders": [first, second, []], "..": [rows(3)]})
    path = source / f"{T - 1}_data"
    path.write_bytes(path.read_bytes()[:-2])
    return Ends(tmp_path, source)


@pytest.fixture
def log(tmp_path: Path, small: None) -> Ends:
    """A log of several segments here."""
    put_segment(tmp_path / "source" / "1", rows(10, step=DAY))
    return Ends(tmp_path, tmp_path / "source")


@pytest.fixture
def slabs(tmp_path: Path, small: None) -> Ends:
    """Four slabs, of which one is missing and one is damaged."""
    with SlabWriter(tmp_path / "source", 60) as writer:
        for number in range(14):
            writer.write(b"value %d" % number)
    _, missing, damaged, *_ = sorted((tmp_path / "source").iterdir())
    missing.unlink()
    damaged.write_bytes(b"\xff" + damaged.read_bytes()[1:])
    return Ends(tmp_path, tmp_path / "source")


def test_topics_killed_before_any_change(topics: Ends) -> None:
    changes = topics.try_all(lambda disk, nth: disk.die(nth))
    assert changes > 80, "an import has so many changes, and was killed before each"


def test_log_killed_before_any_change(log: Ends) -> None:
    assert log.try_all(lambda disk, nth: disk.die(nth)) > 40


def test_slabs_killed_before_any_change(slabs: Ends) -> None:
    assert slabs.try_all(lambda disk, nth: disk.die(nth)) > 30


@pytest.mark.parametrize(("first", "written"), [(1, 1), (3, 60), (5, 200)])
def test_topics_killed_in_the_middle_of_any_write(topics: Ends, first: int, written: int) -> None:
    topics.try_all(lambda disk, nth: disk.die(nth, written=written), first, every=6)


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EIO])
def test_topics_after_any_failed_change(topics: Ends, problem: int) -> None:
    """From that change on all of them fail, as on a full disk, until the import is run again."""

    def fail(disk: FaultyDisk, nth: int) -> None:
        for kind in CHANGES:
            disk.fail(kind, nth, problem, lasting=True)

    topics.try_all(fail, every=3)


def test_import_goes_on_behind_the_records_that_it_has(log: Ends, tmp_path: Path) -> None:
    """Nothing is written a second time: the segments that were there are the same files."""
    target, disk = tmp_path / "new", CountingDisk()
    disk.die(log.changes().count(*CHANGES) * 2 // 3)
    with suppress(Died):
        import_into(target, log.source, filesystem=disk)
    result = target.with_name("new.importing") / "result"
    before = {path.name: path.stat().st_ino for path in segments(result)}
    assert len(before) > 1
    assert import_into(target, log.source) == log.reports
    after = {path.name: path.stat().st_ino for path in segments(target)}
    assert before.items() <= after.items()
    assert imported(target).popitem()[1] == log.expected.popitem()[1]


def test_log_is_begun_anew_after_a_restart_of_the_machine(
    log: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another boot may have lost what was not synced, so a log goes on far above it; an import must not."""
    for nth in range(1, log.changes().count(*CHANGES), 1 if LONG else 3):
        target, disk = tmp_path / f"new-{nth}", CountingDisk()
        disk.die(nth)
        with suppress(Died):
            import_into(target, log.source, filesystem=disk)
        if target.exists() and not work_folder.is_begun(target):
            break  # all is done but the removal of an empty folder
        with monkeypatch.context() as patch:
            patch.setattr(SystemClock, "boot_id", lambda _clock: b"of another boot.")
            assert import_into(target, log.source, filesystem=CountingDisk()) == log.reports
        assert only_log(target) == only_log(log.whole)


def test_log_that_is_not_what_the_import_left_is_begun_anew(
    log: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is missing or damaged, a record is another one, or there are more than in the source."""

    def lack(result: Path) -> None:
        segments(result)[0].unlink()

    def add(result: Path) -> None:
        with Log.open(result) as found:
            found.append(b"another one")

    def add_many(result: Path) -> None:
        with Log.open(result) as found:
            for _ in range(30):
                found.append(b"another one")

    def damage(result: Path) -> None:
        segments(result)[-1].write_bytes(b"nothing of a segment" * 100)

    for number, change in enumerate((lack, add, add_many, damage)):
        target, disk = tmp_path / f"new-{number}", CountingDisk()
        disk.die(40)
        with suppress(Died):
            import_into(target, log.source, filesystem=disk)
        change(target.with_name(target.name + ".importing") / "result")
        seen: list[int] = []
        assert import_into(target, log.source, advance=seen.append) == log.reports
        assert sum(seen) == sum(path.stat().st_size for path in log.source.iterdir())
        assert only_log(target) == only_log(log.whole)


def test_what_was_to_be_removed_is_removed_by_the_next_run(log: Ends, tmp_path: Path) -> None:
    target = tmp_path / "new"
    work = tmp_path / "new.importing"
    shutil.copytree(log.whole, work / "discarded")
    (work / "lock").touch()
    with pytest.raises(RequestError, match="is something else"):
        import_into(target, log.source)
    shutil.rmtree(work)
    disk = CountingDisk()
    disk.die(30)
    with suppress(Died):
        import_into(target, log.source, filesystem=disk)
    shutil.copytree(log.whole, work / "discarded")
    assert import_into(target, log.source) == log.reports
    assert not work.exists()


def test_finished_import_whose_target_was_moved_is_begun_anew(log: Ends, tmp_path: Path) -> None:
    target, disk = tmp_path / "new", CountingDisk()
    disk.fail("remove", log.changes().count("remove"), Died("it ends before the state is removed"))
    with suppress(Died):
        import_into(target, log.source, filesystem=disk)
    shutil.rmtree(target)
    assert work_folder.is_begun(target)
    assert import_into(target, log.source) == log.reports
    assert only_log(target) == only_log(log.whole)


@pytest.mark.parametrize("comes_back", [False, True])
def test_topic_that_has_left_the_source_is_discarded_whole(
    tmp_path: Path, small: None, comes_back: bool
) -> None:
    """Killed before any change of the run without it; the next run has what one that was never ended has."""
    source, begun = tmp_path / "source", tmp_path / "begun.importing"
    put_topics(source, {name: [rows(6, step=DAY)] for name in ("orders", "others")})
    assert [one.records for one in import_first(tmp_path / "begun", source, 2)] == [6, 6]
    topic, away = source / "topics" / "others", tmp_path / "away"
    for nth in count(1):
        topic.rename(away)
        disk, target = CountingDisk(), tmp_path / f"target-{nth}"
        shutil.copytree(begun, target.with_name(f"{target.name}.importing"))
        disk.die(nth)
        with suppress(Died):
            import_into(target, source, filesystem=disk)
        if comes_back:
            away.rename(topic)
        if not target.exists():
            import_into(target, source)
            expected = ["orders", "others"] if comes_back else ["orders"]
            assert {name: len(found) for name, (found, _) in imported(target).items()} == dict.fromkeys(
                expected, 6
            ), f"after an end at change {nth}"
        else:
            assert [*imported(target)] == ["orders"]
        if not comes_back:
            away.rename(topic)
        if not disk.struck_any:
            assert nth > 8, "an import has so many changes, and was killed before each"
            return


def test_log_that_stays_wrong_ends_the_import(
    log: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_import: object, _advance: object) -> None:
        raise BeginAnew("it goes on elsewhere")

    monkeypatch.setattr(LogImport, "run", run)
    with pytest.raises(QuothError, match="it goes on elsewhere") as raised:
        import_into(tmp_path / "new", log.source)
    assert raised.value.code == "storage_failed"
    assert work_folder.is_begun(tmp_path / "new")
