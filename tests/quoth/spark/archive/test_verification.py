"""Verifying an archive: each missing, cut or changed file is found, and an undamaged archive is whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kit.scale import times
from kit.spark.archives import Archiving, of_archive, rewrite
from kit.spark.replays import Meanwhile
from kit.spark.workers import LocalWorkers
from quoth import NotFound, RequestError
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, compaction
from quoth.spark.archive.manifest import ArchivedFile
from quoth.spark.archive.parquet import read_file
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import FileFinding
from quoth.spark.jobs import archive as jobs
from quoth.spark.jobs.session import JobSummary
from quoth.spark.workers import Workers
from quothwire.errors import Damaged


def summary(root: Path, workers: Workers = LocalWorkers()) -> JobSummary:  # noqa: B008
    """Verify an archive in this process."""
    return jobs.verdict(root, *jobs.verify(root, workers, Selection("*")), 1.0)


def findings(root: Path, workers: Workers = LocalWorkers()) -> list[FileFinding]:  # noqa: B008
    return jobs.verify(root, workers, Selection("*"))[1]


def with_files(root: Path, files: Sequence[ArchivedFile]) -> None:
    """Let the manifest name these files of its only log."""
    with ArchiveStore(root) as store:
        [log] = store.manifest.logs
        store.commit(store.manifest.with_log(replace(log, files=tuple(files))))


def test_an_undamaged_archive_is_whole_also_after_a_trim_a_compaction_and_a_loss(
    scene: Archiving, files: list[Path]
) -> None:
    found = summary(scene.root)
    assert found.good
    assert found.content["records"] == of_archive(scene.root).records == 166
    size = sum(one.stat().st_size for one in files)
    assert found.lines == [f"{scene.topic}: {len(files)} files, 166 records, {size:,} bytes: whole"]
    scene.client.trim(scene.topic, scene.client.topic(scene.topic).last)
    scene.publish([40, 40])
    scene.archive()
    scene.compact()
    assert findings(scene.root) == []
    scene.publish([39])
    scene.client.roll(scene.topic)
    scene.publish([5])
    scene.client.trim(scene.topic, scene.client.topic(scene.topic).last - 4)
    scene.archive()
    found = summary(scene.root)
    assert found.good
    assert found.lines[-1].endswith("whole; 39 records were lost before they could be archived")


# -- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "cut", "another", "a folder"])
def test_a_changed_file_is_reported_and_neither_merged_nor_trimmed(
    scene: Archiving, files: list[Path], how: str
) -> None:
    scene.client.roll(scene.topic)
    before = scene.manifest
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
    [found] = findings(scene.root)
    assert (found.kind, Path(found.name).name) == ("missing" if how == "missing" else "damaged", one.name)
    assert str(one) in found.text
    assert scene.compact().findings == [found]
    assert scene.manifest == before
    with pytest.raises(Damaged, match=one.name):
        scene.archive(trim=True)
    assert scene.client.topic(scene.topic).count == 166


def test_a_flipped_byte_is_found_and_not_merged_or_has_no_meaning(
    scene: Archiving, files: list[Path], rng: random.Random
) -> None:
    before, held, content = scene.manifest, of_archive(scene.root), files[0].read_bytes()
    noticed = refused = 0
    for at in rng.sample(range(len(content)), times(30, 300)):
        files[0].write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        if findings(scene.root):
            noticed += 1
        else:
            assert of_archive(scene.root) == held, at
        if scene.compact(keep_replaced=60).findings:
            refused += 1
            assert scene.manifest == before
        else:
            assert of_archive(scene.root) == held, at
            with ArchiveStore(scene.root) as store:
                store.commit(before)
            before = scene.manifest
    assert noticed > 10
    assert refused > 2


def turned(table: pa.Table) -> pa.Table:
    return table.take(list(reversed(range(table.num_rows))))


def with_other_values(table: pa.Table) -> pa.Table:
    return table.set_column(
        3, table.schema.field("value"), pa.array([b"other"] * table.num_rows, pa.binary())
    )


@pytest.mark.parametrize(("change", "says"), [(turned, "do not rise"), (with_other_values, "are not the")])
def test_other_records_with_the_same_footer_are_found_and_not_merged(
    scene: Archiving, files: list[Path], change: Any, says: str
) -> None:
    """The order of records is not in the fingerprint, and their values are in no statistics."""
    scene.client.roll(scene.topic)
    rewrite(files[0], change)
    with pytest.raises(Damaged, match=files[0].name):
        scene.archive(trim=True)
    first, *rest = scene.log.files
    with_files(scene.root, [first._replace(bytes=files[0].stat().st_size), *rest])
    [found] = findings(scene.root)
    assert says in found.text
    assert scene.compact().findings == [found]
    assert list(map(Path, archived_files(scene.root))) == files, "it is not merged"


def test_files_that_contradict_each_other_are_reported_and_not_merged(
    scene: Archiving, files: list[Path]
) -> None:
    [log] = scene.manifest.logs
    first, second, *rest = log.files
    with_files(scene.root, [second, *rest])
    assert findings(scene.root) == [], "it may have begun there"
    with_files(scene.root, [first, *rest])
    [found] = findings(scene.root)
    assert found.text == f"{second.rows} records of {log.topic!r} are in no file, and 0 were lost"
    with_files(scene.root, [*log.files, log.files[-1]])
    [found] = findings(scene.root)
    assert found.text == f"{log.files[-1].name} overlaps {log.files[-1].name}"
    done = scene.compact()
    assert (done.merged, done.findings) == (0, [found])


def test_a_file_that_the_file_system_refuses_to_read_is_not_called_damaged(
    scene: Archiving, files: list[Path]
) -> None:
    files[0].unlink()
    files[0].symlink_to(files[0])
    found = findings(scene.root)
    assert [(one.kind, scene.root / one.name) for one in found] == [("unreadable", files[0])]
    assert scene.compact().findings == found
    report = summary(scene.root)
    assert not report.good
    assert (report.content["unreadable_files"], report.content["damaged_files"]) == (1, 0)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        next(read_file(scene.root, scene.log.files[0]))


def test_jobs_report_missing_and_damaged_files_and_fail(scene: Archiving, files: list[Path]) -> None:
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    scene.client.publish(scene.topic, b"new")
    archive = scene.archiver()
    for _ in range(2):
        archive.run()
    assert [line.split(":")[0] for line in scene.reports] == ["missing", "damaged"], "once"
    assert archive.tally.records == 1, "the new ones are archived all the same"
    merged = jobs.compacted(scene.compact(), scene.root, 1.0)
    for found in (jobs.archived(archive.tally, scene.root, 1.0), merged):
        assert not found.good
        assert "2 files with " in found.lines[-1]
        assert [one["kind"] for one in found.content["findings"]] == ["missing", "damaged"]
    assert str(files[0]) in merged.lines[0]


# -- beside a compaction ------------------------------------------------------------------------------------


def test_files_that_are_merged_meanwhile_are_not_missing(scene: Archiving, files: list[Path]) -> None:
    assert findings(scene.root, Meanwhile(1, scene.compact)) == []
    assert not files[0].exists()


def test_files_that_a_compaction_makes_meanwhile_are_read_too(scene: Archiving, files: list[Path]) -> None:
    def merge_and_cut() -> None:
        scene.compact()
        [path] = map(Path, archived_files(scene.root))
        path.write_bytes(path.read_bytes()[:-1])

    found = summary(scene.root, Meanwhile(1, merge_and_cut)).content
    assert [one["kind"] for one in found["findings"]] == ["damaged"]
    [log] = found["logs"]
    assert (log["topic"], log["files"], log["records"], log["whole"]) == (scene.topic, 1, 166, False)


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
    scene: Archiving, files: list[Path]
) -> None:
    with pytest.raises(RequestError, match=r"does not find .* need the same folder"):
        findings(scene.root, Elsewhere(scene.root))
    for workers in (Elsewhere(scene.root), Elsewhere(scene.root, copied=True)):
        with pytest.raises(RequestError, match="need the same folder"):
            scene.compact(workers)
    assert list(map(Path, archived_files(scene.root))) == files
    assert findings(scene.root) == []


# -- the job ------------------------------------------------------------------------------------------------


def test_missing_archives_and_topics_are_refused(scene: Archiving, files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no archive"):
        jobs.verification(tmp_path / "none")
    with pytest.raises(NotFound, match="does not have 'other'"):
        jobs.verification(scene.root, ["other"])


def test_job_on_spark_reports_the_missing_file(scene: Archiving, spark: Any, files: list[Path]) -> None:
    files[1].unlink()
    done = jobs.verification(scene.root)(spark)
    assert not done.good
    assert (done.content["missing_files"], done.content["damaged_files"]) == (1, 0)
    assert [Path(one["name"]).name for one in done.content["findings"]] == [files[1].name]
