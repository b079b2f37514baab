"""Topics of a data directory as they were at a moment, copied beside a broker that may be running.

    TO/lock                               flock()ed while it is written to
    TO/backup.json                        the manifest, written last and replaced whole
    TO/orders~53c1a0be94d7f6e2/           a topic: its files, see `quothlog.backup.backup`

Another backup into the same folder copies what is new, and its manifest takes the place of the old one; only
then what nobody needs any more is removed. So whenever it breaks off, the folder holds the last backup that
was finished, and the next one goes on with what has been copied. Topics that are not backed up this time, or
are not there any more, stay as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quothd.datadir import manifest
from quothd.datadir.manifest import Manifest, SavedTopic
from quothlog.backup.backup import Archive, Archiver, discard
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.file_format import LOCK_NAME
from quothlog.recovery.verify import Advance, Damage
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.disk_space import tell_if_full
from quothlog.storage.filesystem import TEMPORARY_SUFFIX, FileSystem, PosixFileSystem
from quothwire.errors import QuothError, error


@dataclass
class Outcome:
    """What became of one topic.

    saved: None if it was deleted meanwhile, or could not be read: that is the problem then. copied: bytes
    that were not in the folder before.
    """

    folder: TopicFolder
    saved: SavedTopic | None = None
    copied: int = 0
    damages: list[Damage] = field(default_factory=list)
    problem: QuothError | None = None


def backup(
    folders: Sequence[TopicFolder], to: Path, until: int, advance: Advance, *, exact: bool
) -> Iterator[Outcome]:
    """Copy topics as they were at a moment; tells what became of each. The backup is there at its end.

    until: the moment as a pointer, not in the future. exact: see `Archiver`. Raises `Conflict` ``locked``,
    `RequestError` ``bad_request`` if something else lies in the folder, `Damaged`, ``disk_low``, or OSError.
    """
    filesystem = PosixFileSystem()
    with _owned(filesystem, to):
        whole = manifest.load(to) or Manifest()
        saved: list[SavedTopic] = []
        for folder in folders:
            outcome = _save(filesystem, folder, to, until, advance, exact=exact)
            before = whole.topics.get(folder.path.name)
            if outcome.saved and before and before.archive.segments and not outcome.saved.archive.segments:
                text = f"{folder.path} has no segment any more"
                outcome.saved, outcome.problem = None, error("damaged", text, _AFTER_A_LOSS)
            if outcome.saved is not None:
                whole.topics[folder.path.name] = outcome.saved
                saved.append(outcome.saved)
            yield outcome
        with tell_if_full(filesystem, to, manifest.NAME, _AFTER_A_FULL_DISK):
            whole.save(to)
        for one in saved:
            with contextlib.suppress(OSError):  # the next backup removes it
                discard(filesystem, to / one.folder, one.archive)


@contextlib.contextmanager
def _owned(filesystem: FileSystem, to: Path) -> Iterator[None]:
    """Hold the folder, in which there is a backup, the beginning of one, or nothing."""
    filesystem.make_directory(to)
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


def _save(
    filesystem: FileSystem, folder: TopicFolder, to: Path, until: int, advance: Advance, *, exact: bool
) -> Outcome:
    """Copy one topic. That it cannot be read is its affair alone; that there is no room is everybody's."""
    outcome = Outcome(folder)
    target = to / folder.path.name
    try:
        with tell_if_full(filesystem, to, repr(folder.topic.name), _AFTER_A_FULL_DISK):
            archiver = Archiver(folder.path, folder.topic.log_id, target, until, exact=exact)
            outcome.damages += archiver.run(advance)
        archive, outcome.copied = archiver.archive, archiver.copied
    except FileNotFoundError:
        archive = Archive(until)  # a topic to which nobody has published has no segment
    except QuothError as problem:
        if problem.code == "disk_low":
            raise
        outcome.problem = problem
        return outcome
    if folder.path.is_dir():  # else its segments may have gone one by one
        outcome.saved = SavedTopic(folder.path.name, folder.topic, archive)
    return outcome


_AFTER_A_LOSS = "the topic stays in the backup as it was: restore it"
_AFTER_A_FULL_DISK = "the last backup there is as it was, and the next one goes on from here"
