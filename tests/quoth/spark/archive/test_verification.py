"""Verifying an archive: it notices each file that is missing, cut or changed, and finds a whole one whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kit.spark.archives import FILE_BYTES, of_archive, publish, turn
from quoth import Client, NotFound, RequestError
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, compaction, verification
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.archive.compaction import Compactor
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.parquet import check_footer
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.archive.verification import FileFinding
from quoth.spark.jobs import archive as archiving
from quoth.spark.jobs import compact, verify
from quoth.spark.jobs.session import JobSummary
from quoth.spark.workers import LocalWorkers


def archive(client: Client, root: Path, topic: str, tell: Any = print) -> TopicArchiver:
    """Archive what a topic holds, in several files."""
    archiver = TopicArchiver(client, root, LocalWorkers(), topic, Policy(file_bytes=FILE_BYTES), tell)
    archiver.run()
    return archiver


def verified(root: Path, topics: str = "*") -> list[FileFinding]:
    """Verify an archive in this process."""
    return verify.verify(root, LocalWorkers(), Selection(topics))[1]


@pytest.fixture
def files(client: Client, root: Path, topic: str) -> list[Path]:
    """The files of an archive, two runs of several each."""
    for run in range(2):
        publish(client, topic, [40, 40, 3], f"run {run}")
        archive(client, root, topic)
    return list(map(Path, archived_files(root)))


def test_a_whole_archive_is_found_whole(client: Client, root: Path, topic: str, files: list[Path]) -> None:
    logs, found = verify.verify(root, LocalWorkers(), Selection("*"))
    summary = verify.summary_of(root, logs, found, 1.0)
    assert (found, summary.good) == ([], True)
    assert summary.content["records"] == of_archive(root).records == 166
    assert summary.lines == [
        f"{topic}: {len(files)} files, 166 records, {sum(one.stat().st_size for one in files):,} bytes: whole"
    ]


def test_a_merged_archive_of_a_trimmed_topic_is_found_whole(
    client: Client, root: Path, topic: str, files: list[Path]
) -> None:
    client.trim(topic, client.topic(topic).last)
    publish(client, topic, [40, 40])
    archive(client, root, topic)
    with ArchiveStore(root) as store:
        Compactor(store, LocalWorkers(), keep_replaced=0).run()
    assert verified(root) == []


def test_records_that_were_lost_are_no_damage_and_are_reported(
    client: Client, root: Path, topic: str
) -> None:
    publish(client, topic, [40])
    archive(client, root, topic)
    publish(client, topic, [39])
    client.roll(topic)
    publish(client, topic, [5])
    client.trim(topic, client.topic(topic).last - 4)
    archive(client, root, topic, tell=lambda _: None)
    logs, found = verify.verify(root, LocalWorkers(), Selection("*"))
    assert found == []
    assert (
        verify.summary_of(root, logs, found, 1.0)
        .lines[-1]
        .endswith("whole; 39 records were lost before they could be archived")
    )


@pytest.mark.parametrize("how", ["missing", "cut", "another", "a folder"])
def test_a_file_that_is_not_what_it_was_is_named(files: list[Path], root: Path, how: str) -> None:
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
    [found] = verified(root)
    assert (found.kind, Path(found.name).name) == ("missing" if how == "missing" else "damaged", one.name)
    assert str(one) in found.text


def test_a_flipped_byte_is_noticed_or_says_nothing(
    client: Client, root: Path, topic: str, files: list[Path], rng: random.Random
) -> None:
    held, content, noticed = of_archive(root), files[0].read_bytes(), 0
    for at in rng.sample(range(len(content)), 100):
        files[0].write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        if verified(root):
            noticed += 1
        else:
            assert of_archive(root) == held, at
    assert noticed > 50


def test_records_in_another_order_are_noticed(files: list[Path], root: Path) -> None:
    """Neither the count nor the fingerprint says it."""
    turn(files[0])
    with ArchiveStore(root) as store:  # of the size that it has now
        [log] = store.manifest.logs
        size = files[0].stat().st_size
        changed = (log.files[0]._replace(bytes=size), *log.files[1:])
        store.commit(store.manifest.with_log(replace(log, files=changed)))
    [found] = verified(root)
    assert "do not rise" in found.text
    with ArchiveStore(root) as store:
        compactor = Compactor(store, LocalWorkers(), keep_replaced=0)
        compactor.run()
    assert compactor.done.findings == [found]
    assert list(map(Path, archived_files(root))) == files, "it is not merged"


def test_files_that_contradict_each_other_are_named(files: list[Path], root: Path) -> None:
    def with_log(changed: ArchivedLog) -> None:
        with ArchiveStore(root) as store:
            store.commit(store.manifest.with_log(changed))

    [log] = read_manifest(root).logs
    with_log(replace(log, files=log.files[1:]))
    assert verified(root) == [], "it may have begun there"
    with_log(replace(log, files=log.files[:1] + log.files[2:]))
    [found] = verified(root)
    assert found.text == f"{log.files[1].rows} records of {log.topic!r} are in no file, and 0 were lost"
    with_log(replace(log, files=(*log.files, log.files[-1])))
    assert ["overlaps" in one.text for one in verified(root)] == [True]


def test_files_that_are_merged_meanwhile_are_not_missing(
    files: list[Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(LocalWorkers):
        def each(self, work: Any, parts: Any) -> Any:
            with ArchiveStore(root) as store:
                Compactor(store, LocalWorkers(), keep_replaced=0).run()
            return super().each(work, parts)

    assert verify.verify(root, Late(), Selection("*"))[1] == []
    assert not files[0].exists()


def merge_all(root: Path) -> Path:
    """Compact an archive and remove what was merged; returns the one file that is left."""
    with ArchiveStore(root) as store:
        Compactor(store, LocalWorkers(), keep_replaced=0).run()
    [path] = map(Path, archived_files(root))
    return path


def test_file_that_is_removed_between_two_looks_at_it_is_not_damaged(
    files: list[Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*which: Any) -> None:
        if files[0].exists():
            merge_all(root)
        check_footer(*which)

    monkeypatch.setattr(verification, "check_footer", late)
    logs, found = verify.verify(root, LocalWorkers(), Selection("*"))
    assert found == []
    assert [root / file.name for log in logs for file in log.files] == list(map(Path, archived_files(root)))


def test_files_that_a_compaction_makes_meanwhile_are_read_too(
    files: list[Path], root: Path, topic: str
) -> None:
    class Late(LocalWorkers):
        def each(self, work: Any, parts: Any) -> Any:
            if files[0].exists():
                path = merge_all(root)
                path.write_bytes(path.read_bytes()[:-1])
            return super().each(work, parts)

    logs, found = verify.verify(root, Late(), Selection("*"))
    assert [one.kind for one in found] == ["damaged"]
    [told] = verify.summary_of(root, logs, found, 1.0).content["logs"]
    assert (told["topic"], told["files"], told["records"], told["whole"]) == (topic, 1, 166, False)


class Elsewhere(LocalWorkers):
    """A worker to which the folder of an archive is not mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def each(self, work: Any, parts: Any) -> Any:
        """See `Workers.each`."""
        away = self._root.rename(self._root.with_name("unmounted"))
        try:
            return super().each(work, parts)
        finally:
            away.rename(self._root)


def test_a_worker_without_the_folder_is_no_damage_of_the_archive(files: list[Path], root: Path) -> None:
    with pytest.raises(RequestError, match=r"does not find .* need the same folder"):
        verify.verify(root, Elsewhere(root), Selection("*"))
    with ArchiveStore(root) as store:
        compactor = Compactor(store, Elsewhere(root), keep_replaced=0)
        with pytest.raises(RequestError, match=r"does not find .* need the same folder"):
            compactor.run()
    assert list(map(Path, archived_files(root))) == files
    assert verified(root) == []


def test_a_file_that_a_worker_writes_into_its_own_copy_of_the_folder_is_not_committed(
    files: list[Path], root: Path, tmp_path: Path
) -> None:
    class Copied(LocalWorkers):
        def each(self, work: Any, parts: Any) -> Any:
            copied = shutil.copytree(root, tmp_path / "copied")
            try:
                return super().each(partial(compaction.merge, str(copied)), parts)
            finally:
                shutil.rmtree(copied)

    with ArchiveStore(root) as store, pytest.raises(RequestError, match="need the same folder"):
        Compactor(store, Copied(), keep_replaced=0).run()
    assert verified(root) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_file_that_the_file_system_refuses_to_read_is_not_called_damaged(
    files: list[Path], root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    opened = pq.ParquetFile

    def fail(path: Path, **options: Any) -> Any:
        if path == files[0]:
            raise OSError(number, os.strerror(number))
        return opened(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", fail)
    logs, found = verify.verify(root, LocalWorkers(), Selection("*"))
    assert [(one.kind, root / one.name) for one in found] == [("unreadable", files[0])]
    summary = verify.summary_of(root, logs, found, 1.0)
    assert (summary.good, summary.content["unreadable_files"], summary.content["damaged_files"]) == (
        False,
        1,
        0,
    )
    with ArchiveStore(root) as store:
        compactor = Compactor(store, LocalWorkers(), keep_replaced=0)
        compactor.run()
    assert compactor.done.findings == found


def test_archiving_and_compaction_name_what_they_met_and_fail(
    client: Client, root: Path, topic: str, files: list[Path], told: list[str]
) -> None:
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    client.publish(topic, b"new")
    archiver = archive(client, root, topic, told.append)
    assert [line.split(":")[0] for line in told] == ["missing", "damaged"]
    assert archiver.tally.records == 1, "the new ones are archived all the same"
    archiver.run()
    assert len(told) == 2, "once"
    with ArchiveStore(root) as store:
        compactor = Compactor(store, LocalWorkers(), keep_replaced=0)
        compactor.run()
    summaries: list[JobSummary] = [
        archiving.summary_of(archiver.tally, root, 1.0),
        compact.summary_of(compactor.done, root, 1.0),
    ]
    for summary in summaries:
        assert not summary.good
        assert "2 files with " in summary.lines[-1]
        assert [one["kind"] for one in summary.content["findings"]] == ["missing", "damaged"]
    assert str(files[0]) in summaries[1].lines[0]


def test_what_is_no_archive_or_not_in_it_is_refused(files: list[Path], root: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no archive"):
        verify.job(tmp_path / "none")
    with pytest.raises(NotFound, match="does not have 'other'"):
        verify.job(root, ["other"])


def test_job_on_spark_names_the_missing_file(spark: Any, files: list[Path], root: Path) -> None:
    files[1].unlink()
    done = verify.job(root)(spark)
    assert not done.good
    summary = done.content
    assert (summary["whole"], summary["missing_files"], summary["damaged_files"]) == (False, 1, 0)
    assert [Path(one["name"]).name for one in summary["findings"]] == [files[1].name]
