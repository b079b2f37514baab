"""Copies topics of a data directory as they were at one time. A broker may run at the same time.

    TO/lock                               locked while a backup writes to the folder
    TO/backup.json                        the manifest, written last and replaced atomically
    TO/orders~53c1a0be94d7f6e2/           a topic: its files, see `quothlog.backup.backup`

Another backup into the same folder copies new files only. Its manifest replaces the old one, and then files
that it does not name are removed. So an interrupted backup leaves the last finished one as it was, and the
next one goes on. The folder keeps topics that are left out this time or do not exist any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quothd.datadir import manifest
from quothd.datadir.manifest import SavedTopic
from quothlog.backup.backup import Archive, Archiver, discard
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.file_format import LOCK_NAME
from quothlog.groups.group_log import FOLDER, group_log_id
from quothlog.recovery.snapshot import DISK
from quothlog.recovery.verify import Advance, Damage
from quothlog.storage.clock import SystemClock
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import TEMPORARY_SUFFIX
from quothlog.storage.write_failure import report_full_disk
from quothwire.errors import QuothError, error


@dataclass
class Outcome:
    """The result for one topic.

    saved: None if the topic was deleted meanwhile or could not be read. problem: the reason why it could not.
    copied: the bytes that were new in the folder.
    """

    folder: TopicFolder
    saved: SavedTopic | None = None
    copied: int = 0
    damages: list[Damage] = field(default_factory=list)
    problem: QuothError | None = None


def backup(
    folders: Sequence[TopicFolder], to: Path, until: int, advance: Advance, *, exact: bool
) -> Iterator[Outcome]:
    """Copy topics as they were at one time; yields an outcome for each. The end of it finishes the backup.

    until: that time as a pointer, not in the future. exact: see `Archiver`. Raises `Conflict` ``locked``,
    `RequestError` ``bad_request`` if the folder holds other files, `Damaged`, ``disk_low``, or OSError.
    """
    with _owned(to):
        whole = manifest.load(to) or {}
        saved: list[SavedTopic] = []
        for folder in folders:
            outcome = _save(folder, to, until, advance, exact=exact)
            before = whole.get(folder.path.name)
            if outcome.saved and before and before.archive.segments and not outcome.saved.archive.segments:
                text = f"{folder.path} has no segment any more"
                outcome.saved, outcome.problem = None, error("damaged", text, _AFTER_A_LOSS)
            if outcome.saved is not None:
                whole[folder.path.name] = outcome.saved
                saved.append(outcome.saved)
            yield outcome
        with report_full_disk(DISK, to, manifest.NAME, _AFTER_A_FULL_DISK):
            manifest.save(to, whole)
        for one in saved:
            with contextlib.suppress(OSError):  # the next backup removes it
                discard(DISK, to / one.folder, one.archive)
                if one.groups is not None:
                    discard(DISK, to / one.folder / FOLDER, one.groups)


@contextlib.contextmanager
def _owned(to: Path) -> Iterator[None]:
    """Lock the folder, which must be empty or hold a backup, finished or not."""
    DISK.make_directory(to)
    for path in to.iterdir():
        ours = path.name in (LOCK_NAME, manifest.NAME, manifest.NAME + TEMPORARY_SUFFIX)
        topic = topic_folder.log_id_of(path) and path.is_dir() and not path.is_symlink()
        if not ours and (not topic or (path / topic_file.NAME).exists()):
            text = f"{to} holds {path.name!r}, so it is no backup; nothing was changed"
            raise error("bad_request", text, "give a folder that is empty or new, or holds a backup")
    lock = DirectoryLock(to)
    try:
        yield
    finally:
        lock.release()


def _save(folder: TopicFolder, to: Path, until: int, advance: Advance, *, exact: bool) -> Outcome:
    """Copy one topic. A read error skips this topic; a full disk aborts the backup."""
    outcome = Outcome(folder)
    target = to / folder.path.name
    groups: Archive | None = None
    try:
        with report_full_disk(DISK, to, repr(folder.topic.name), _AFTER_A_FULL_DISK):
            archiver = Archiver(folder.path, folder.topic.log_id, target, until, exact=exact)
            outcome.damages += archiver.run(advance)
            archive, outcome.copied = archiver.archive, archiver.copied
            groups = _save_groups(outcome, target, advance)
    except FileNotFoundError:
        archive = Archive(until)  # a topic without any publish has no segment
    except QuothError as problem:
        if problem.code == "disk_low":
            raise
        outcome.problem = problem
        return outcome
    if folder.path.is_dir():  # otherwise it was deleted, and the archive may lack segments
        outcome.saved = SavedTopic(folder.path.name, folder.topic, archive, groups)
    return outcome


def _save_groups(outcome: Outcome, target: Path, advance: Advance) -> Archive | None:
    """Copy the log of a topic's groups as it is now; returns None if it has none.

    It may be ahead of the topic's records in the backup. What the groups have finished above them has no
    effect: the restored log gives those pointers to no other record.
    """
    folder = outcome.folder
    if not (folder.path / FOLDER).is_dir():
        return None
    own_id, now = group_log_id(folder.topic.log_id), SystemClock().now()
    try:
        archiver = Archiver(folder.path / FOLDER, own_id, target / FOLDER, now, exact=False)
        outcome.damages += archiver.run(advance)
    except FileNotFoundError:
        return None
    outcome.copied += archiver.copied
    return archiver.archive


_AFTER_A_LOSS = "the topic stays in the backup as it was: restore it"
_AFTER_A_FULL_DISK = "the last backup there is as it was, and the next one goes on from here"
