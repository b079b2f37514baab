"""Verifying an archive: each missing, cut or changed file is found, and an undamaged archive is whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.scale import times
from kit.spark.archives import of_archive, publish, turn
from kit.spark.replays import Meanwhile
from quoth import Client, NotFound, RequestError
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, compaction
from quoth.spark.archive.archiver import ArchiveTally, TopicArchiver
from quoth.spark.archive.compaction import Compacted
from quoth.spark.archive.manifest import ArchivedFile, ArchiveManifest
from quoth.spark.archive.parquet import read_file
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.archive.verification import FileFinding
from quoth.spark.jobs import archive as jobs
from quoth.spark.jobs.session import JobSummary
from quoth.spark.workers import LocalWorkers, Workers
from quothwire.errors import Damaged

Archive = Callable[..., ArchiveTally]
Compact = Callable[..., Compacted]


def summary(root: Path, workers: Workers = LocalWorkers()) -> JobSummary:  # noqa: B008
    """Verify an archive in this process."""
    return jobs.verdict(root, *jobs.verify(root, workers, Selection("*")), 1.0)


def findings(root: Path, workers: Workers = LocalWorkers()) -> list[FileFinding]:  # noqa: B008
    return jobs.verify(root, workers, Selection("*"))[1]


def put_back(root: Path, manifest: ArchiveManifest) -> None:
    """Let an archive have a manifest of before."""
    with ArchiveStore(root) as store:
        store.commit(manifest)


def with_files(root: Path, files: Sequence[ArchivedFile]) -> None:
    """Let the manifest name these files of its only log."""
    with ArchiveStore(root) as store:
        [log] = store.manifest.logs
        store.commit(store.manifest.with_log(replace(log, files=tuple(files))))


def test_an_undamaged_archive_is_whole_also_after_a_trim_and_a_compaction(
    client: Client, archive: Archive, compact: Compact, root: Path, topic: str, files: list[Path]
) -> None:
    found = summary(root)
    assert found.good
    assert found.content["records"] == of_archive(root).records == 166
    size = sum(one.stat().st_size for one in files)
    assert found.lines == [f"{topic}: {len(files)} files, 166 records, {size:,} bytes: whole"]
    client.trim(topic, client.topic(topic).last)
    publish(client, topic, [40, 40])
    archive()
    compact()
    assert findings(root) == []


def test_lost_records_are_no_damage_and_are_reported(
    client: Client, archive: Archive, root: Path, topic: str
) -> None:
    publish(client, topic, [40])
    archive()
    publish(client, topic, [39])
    client.roll(topic)
    publish(client, topic, [5])
    client.trim(topic, client.topic(topic).last - 4)
    archive()
    found = summary(root)
    assert found.good
    assert found.lines[-1].endswith("whole; 39 records were lost before they could be archived")


# -- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "cut", "another", "a folder"])
def test_a_changed_file_is_reported_and_neither_merged_nor_trimmed(
    client: Client,
    archive: Archive,
    compact: Compact,
    files: list[Path],
    root: Path,
    topic: str,
    how: str,
) -> None:
    client.roll(topic)
    before = read_manifest(root)
    one, other, *_ = files
    content = one.read_bytes()
    one.unlink()
    match how:
        case "cut":
            one.write_bytes(content[:-1])
        case "another":
            one.write_bytes(other.read_bytes())
        case "a folder":
            one.mkdir()
    [found] = findings(root)
    assert (found.kind, Path(found.name).name) == ("missing" if how == "missing" else "damaged", one.name)
    assert str(one) in found.text
    assert compact().findings == [found]
    assert read_manifest(root) == before
    with pytest.raises(Damaged, match=one.name):
        archive(trim=True)
    assert client.topic(topic).count == 166


def test_a_flipped_byte_is_found_and_not_merged_or_has_no_meaning(
    compact: Compact, files: list[Path], root: Path, rng: random.Random
) -> None:
    before, held, content = read_manifest(root), of_archive(root), files[0].read_bytes()
    noticed = refused = 0
    for at in rng.sample(range(len(content)), times(30, 300)):
        files[0].write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        if findings(root):
            noticed += 1
        else:
            assert of_archive(root) == held, at
        if compact(keep_replaced=60).findings:
            refused += 1
            assert read_manifest(root) == before
        else:
            assert of_archive(root) == held, at
            put_back(root, before)
            before = read_manifest(root)
    assert noticed > 10
    assert refused > 2


def test_records_in_another_order_are_found_by_their_pointers(
    client: Client, archive: Archive, compact: Compact, files: list[Path], root: Path, topic: str
) -> None:
    """Neither the count nor the fingerprint says it."""
    client.roll(topic)
    turn(files[0])
    with pytest.raises(Damaged, match=files[0].name):
        archive(trim=True)
    first, *rest = read_manifest(root).logs[0].files
    with_files(root, [first._replace(bytes=files[0].stat().st_size), *rest])
    [found] = findings(root)
    assert "do not rise" in found.text
    assert compact().findings == [found]
    assert list(map(Path, archived_files(root))) == files, "it is not merged"


def test_files_that_contradict_each_other_are_reported_and_not_merged(
    compact: Compact, files: list[Path], root: Path
) -> None:
    [log] = read_manifest(root).logs
    first, second, *rest = log.files
    with_files(root, [second, *rest])
    assert findings(root) == [], "it may have begun there"
    with_files(root, [first, *rest])
    [found] = findings(root)
    assert found.text == f"{second.rows} records of {log.topic!r} are in no file, and 0 were lost"
    with_files(root, [*log.files, log.files[-1]])
    [found] = findings(root)
    assert found.text == f"{log.files[-1].name} overlaps {log.files[-1].name}"
    done = compact()
    assert (done.merged, done.findings) == (0, [found])


def test_a_file_that_the_file_system_refuses_to_read_is_not_called_damaged(
    compact: Compact, files: list[Path], root: Path
) -> None:
    files[0].unlink()
    files[0].symlink_to(files[0])
    found = findings(root)
    assert [(one.kind, root / one.name) for one in found] == [("unreadable", files[0])]
    assert compact().findings == found
    told = summary(root)
    assert not told.good
    assert (told.content["unreadable_files"], told.content["damaged_files"]) == (1, 0)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        next(read_file(root, read_manifest(root).logs[0].files[0]))


def test_jobs_report_missing_and_damaged_files_and_fail(
    client: Client,
    archiver: Callable[..., TopicArchiver],
    compact: Compact,
    root: Path,
    topic: str,
    files: list[Path],
    told: list[str],
) -> None:
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    client.publish(topic, b"new")
    archive = archiver()
    for _ in range(2):
        archive.run()
    assert [line.split(":")[0] for line in told] == ["missing", "damaged"], "once"
    assert archive.tally.records == 1, "the new ones are archived all the same"
    merged = jobs.compacted(compact(), root, 1.0)
    for found in (jobs.archived(archive.tally, root, 1.0), merged):
        assert not found.good
        assert "2 files with " in found.lines[-1]
        assert [one["kind"] for one in found.content["findings"]] == ["missing", "damaged"]
    assert str(files[0]) in merged.lines[0]


# -- beside a compaction ------------------------------------------------------------------------------------


def test_files_that_are_merged_meanwhile_are_not_missing(
    compact: Compact, files: list[Path], root: Path
) -> None:
    assert findings(root, Meanwhile(1, compact)) == []
    assert not files[0].exists()


def test_files_that_a_compaction_makes_meanwhile_are_read_too(
    compact: Compact, files: list[Path], root: Path, topic: str
) -> None:
    def merge_and_cut() -> None:
        compact()
        [path] = map(Path, archived_files(root))
        path.write_bytes(path.read_bytes()[:-1])

    found = summary(root, Meanwhile(1, merge_and_cut)).content
    assert [one["kind"] for one in found["findings"]] == ["damaged"]
    [log] = found["logs"]
    assert (log["topic"], log["files"], log["records"], log["whole"]) == (topic, 1, 166, False)


# -- folders that are not shared ----------------------------------------------------------------------------


class Elsewhere(LocalWorkers):
    """A worker to which the folder of an archive is not mounted; or one that merges in a copy of it."""

    def __init__(self, root: Path, *, copied: bool = False) -> None:
        self._root = root
        self._copied = copied

    def each(self, work: Any, parts: Any) -> Any:
        """See `Workers.each`."""
        if self._copied:
            copy = shutil.copytree(self._root, self._root.with_name("copied"))
            return super().each(partial(compaction.merge, str(copy)), parts)
        away = self._root.rename(self._root.with_name("unmounted"))
        try:
            return super().each(work, parts)
        finally:
            away.rename(self._root)


def test_a_worker_with_another_folder_is_an_error_and_no_damage_of_the_archive(
    compact: Compact, files: list[Path], root: Path
) -> None:
    with pytest.raises(RequestError, match=r"does not find .* need the same folder"):
        findings(root, Elsewhere(root))
    for workers in (Elsewhere(root), Elsewhere(root, copied=True)):
        with pytest.raises(RequestError, match="need the same folder"):
            compact(workers)
    assert list(map(Path, archived_files(root))) == files
    assert findings(root) == []


# -- the job ------------------------------------------------------------------------------------------------


def test_missing_archives_and_topics_are_refused(files: list[Path], root: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no archive"):
        jobs.verification(tmp_path / "none")
    with pytest.raises(NotFound, match="does not have 'other'"):
        jobs.verification(root, ["other"])


def test_job_on_spark_reports_the_missing_file(spark: Any, files: list[Path], root: Path) -> None:
    files[1].unlink()
    done = jobs.verification(root)(spark)
    assert not done.good
    assert (done.content["missing_files"], done.content["damaged_files"]) == (1, 0)
    assert [Path(one["name"]).name for one in done.content["findings"]] == [files[1].name]
