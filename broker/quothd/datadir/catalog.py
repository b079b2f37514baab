"""Lists, creates and deletes the folders of the topics in a data directory.

    DIR/lock                                          held while a broker owns the directory
    DIR/topics/SLUG~LOGID/topic.json, *.seg, ...      a topic: readable slug, its log's id in hex
    DIR/topics/.new~LOGID, .gone~LOGID                being created or deleted: the next start removes it

A folder appears and disappears as a whole: it is filled and emptied under a name with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.recovery.snapshot import DISK
from quothlog.storage.filesystem import (
    DISK_FULL,
    PROCESS_SHORT,
    FileSystem,
    NotDurable,
    durable_names,
    sync_directory,
    write_durably,
)
from quothlog.storage.write_failure import need_room, storage_failed
from quothwire.settings import TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX

TOPIC_BYTES = 5 * 4_096
"""Space for a topic without batches: a folder and four small files, a block each."""

_TRIAL = 2**64 - 1
"""Log id in the name of the folder for a trial. The ids of new logs have 63 bits."""


@dataclass
class Catalog:
    """The topics of a data directory. unknown: the names of unknown files and folders."""

    folders: list[TopicFolder] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def scan(directory: Path, filesystem: FileSystem = DISK) -> Catalog:
    """List the topics of a data directory. Removes folders that were being created or deleted."""
    catalog = Catalog()
    topics = directory / "topics"
    filesystem.make_directory(topics)
    sync_directory(filesystem, topics)  # a broker may have died between a rename and its fsync
    for path in sorted(topics.iterdir()):
        text, log_id = path.name.rpartition("~")[0], topic_folder.log_id_of(path)
        if not log_id or not _is_folder(path):
            catalog.unknown.append(path.name)
        elif text in (topic_folder.NEW, topic_folder.GONE):
            remove(path)
        else:
            catalog.folders.append(topic_folder.read(path, text, log_id))
    _rename_duplicates(catalog.folders)
    return catalog


def try_writing(directory: Path, filesystem: FileSystem = DISK) -> None:
    """Try what a publish needs below `topics`: creates a folder with a synced and renamed file, removes it.

    Raises `BrokerFailure` ``storage_failed`` if the system refuses that, and leaves no file. Full disks and
    a lack of descriptors are temporary and no error here.
    """
    folder = directory / "topics" / f"{topic_folder.NEW}~{_TRIAL:016x}"
    try:
        folder.mkdir(mode=0o700)
        write_durably(filesystem, folder / topic_file.NAME, [b"a trial\n"])
        shutil.rmtree(folder)
    except OSError as problem:
        remove(folder)
        if problem.errno not in DISK_FULL | PROCESS_SHORT:
            raise storage_failed(problem, folder) from problem


def make(
    directory: Path,
    topic: TopicFile,
    room: int = 0,
    fill: Callable[[Path], None] | None = None,
    filesystem: FileSystem = DISK,
) -> Path:
    """Create the folder of a new topic durably; returns its path. Raises ``disk_low``, or OSError.

    room: bytes that must stay free for the first publish: if it failed, it would leave an empty topic. fill:
    writes a log into the folder before it gets its name; its exceptions are raised.
    """
    need_room(filesystem, directory, TOPIC_BYTES + room)
    path = topic_folder.path_of(directory, topic)
    assert not path.exists(), "an error would remove it"
    topics = path.parent
    beside = topics / f"{topic_folder.NEW}~{topic.log_id:016x}"
    if os.path.lexists(beside) and not _is_folder(beside):
        what = "a symbolic link" if beside.is_symlink() else "something else"
        raise OSError(errno.ENOTDIR, f"{what} stands where a topic's folder has to be", str(beside))
    filesystem.make_directory(beside)
    try:
        save(beside, topic, filesystem)
        if fill is not None:
            fill(beside)
        with durable_names(filesystem, topics):
            filesystem.rename(beside, path)
    except BaseException:
        remove(beside)
        remove(path)
        raise
    return path


def save(path: Path, topic: TopicFile, filesystem: FileSystem = DISK) -> None:
    """Replace the settings file in a topic's folder atomically."""
    write_durably(filesystem, path / topic_file.NAME, [topic_file.encode(topic)])


def retire(path: Path, filesystem: FileSystem = DISK) -> Path:
    """Rename a topic's folder durably, so that no start lists it; returns its new path, for `remove`.

    Raises OSError if the folder keeps its name, `NotDurable` if a power cut may undo the new one.
    """
    gone = path.with_name(f"{topic_folder.GONE}~{path.name.rpartition('~')[2]}")
    try:
        with durable_names(filesystem, path.parent):
            filesystem.rename(path, gone)
    except NotDurable:
        with contextlib.suppress(OSError):
            filesystem.rename(gone, path)
        raise
    return gone


def remove(path: Path) -> None:
    """Remove a folder as far as possible; the next start removes the rest.

    Leaves alone anything else of that name: rmtree would wait for a FIFO.
    """
    if _is_folder(path):
        shutil.rmtree(path, ignore_errors=True)


def _is_folder(path: Path) -> bool:
    """True for a directory, false for a link to one."""
    return path.is_dir() and not path.is_symlink()


def _rename_duplicates(folders: list[TopicFolder]) -> None:
    """Give a copied folder, whose settings have the name of another topic, a name of its own."""
    taken: set[str] = set()
    for row, folder in enumerate(folders):
        topic = folder.topic
        if topic.name in taken:
            short = topic.name.encode()[: TOPIC_BYTES_MAX - 17].decode(errors="ignore")
            name = f"{short}~{folder.path.name[-16:]}"
            problem = folder.problem or f"another folder holds a topic {topic.name!r}"
            settings = TopicSettings(durability="synced")
            folders[row] = TopicFolder(folder.path, TopicFile(name, topic.log_id, settings), problem)
        taken.add(folders[row].topic.name)
