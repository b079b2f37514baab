"""The topics of a data directory: which folder belongs to which name, and how folders come and go.

    DIR/lock                                          held while a broker owns the directory
    DIR/topics/SLUG~LOGID/topic.json, *.seg, ...      a topic: readable slug, its log's id in hex
    DIR/topics/.new~LOGID, .gone~LOGID                being made, being deleted: removed at the next start

A folder appears complete and disappears whole: it is filled, or emptied, under a name with a dot.
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
from quothlog.storage.disk_space import need_room
from quothlog.storage.filesystem import (
    DISK_FULL,
    PROCESS_SHORT,
    FileSystem,
    NotDurable,
    PosixFileSystem,
    durable_names,
    sync_directory,
    write_durably,
)
from quothlog.storage.write_failure import storage_failed
from quothwire.settings import TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX

TOPIC_BYTES = 5 * 4_096
"""What a topic takes before its first batch: a folder and four small files, a block each."""

_DISK = PosixFileSystem()
_TRIAL = 2**64 - 1
"""Stands for a log's id, of which 63 bits are random, in the name of a folder that a start tries out."""


@dataclass
class Catalog:
    """The topics that a directory holds, and what else lies there."""

    folders: list[TopicFolder] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def scan(directory: Path, filesystem: FileSystem = _DISK) -> Catalog:
    """Find the topics below a directory and clear away what was being made or deleted."""
    catalog = Catalog()
    topics = directory / "topics"
    filesystem.make_directory(topics)
    sync_directory(filesystem, topics)  # who named a folder may have died before that was durable
    for path in sorted(topics.iterdir()):
        text, log_id = path.name.rpartition("~")[0], topic_folder.log_id_of(path)
        if not log_id or not _is_folder(path):
            catalog.strays.append(path.name)
        elif text in (topic_folder.NEW, topic_folder.GONE):
            _discard(path)
        else:
            catalog.folders.append(topic_folder.read(path, text, log_id))
    _tell_apart(catalog.folders)
    return catalog


def try_writing(directory: Path, filesystem: FileSystem = _DISK) -> None:
    """Do below `topics` what a publish does: make a folder, write, sync and rename a file, remove them.

    A full disk and a process short of descriptors are no reason not to serve: that passes. Raises
    `BrokerFailure` ``storage_failed`` if anything else is refused; nothing stays behind.
    """
    folder = directory / "topics" / f"{topic_folder.NEW}~{_TRIAL:016x}"
    try:
        folder.mkdir(mode=0o700)
        write_durably(filesystem, folder / topic_file.NAME, [b"what the start tries out\n"])
        shutil.rmtree(folder)
    except OSError as problem:
        _discard(folder)
        if problem.errno not in DISK_FULL | PROCESS_SHORT:
            raise storage_failed(problem, folder) from problem


def make(
    directory: Path,
    topic: TopicFile,
    room: int = 0,
    fill: Callable[[Path], None] | None = None,
    filesystem: FileSystem = _DISK,
) -> Path:
    """Make the folder of a new topic, durable before it returns. Raises ``disk_low``, or OSError.

    room: bytes that have to be free beside it. Without them it would be left behind empty: what it is made
    for would be refused. fill: puts a log into it before anybody sees it; what it raises is raised.
    """
    need_room(filesystem, directory, TOPIC_BYTES + room)
    path = topic_folder.path_of(directory, topic)
    assert not path.exists(), "what lies there would be removed if this went wrong"
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
        _discard(beside)
        _discard(path)
        raise
    return path


def save(path: Path, topic: TopicFile, filesystem: FileSystem = _DISK) -> None:
    """Replace the settings file in a topic's folder, all of it or nothing."""
    write_durably(filesystem, path / topic_file.NAME, [topic_file.encode(topic)])


def retire(path: Path, filesystem: FileSystem = _DISK) -> Path:
    """Take a topic's folder out of the catalog, durably. What it is called now may be removed.

    Raises OSError if it is where it was, `NotDurable` if that may not survive a loss of power.
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


def remove(gone: Path) -> None:
    """Remove a retired folder; what cannot be removed now is removed at the next start."""
    _discard(gone)


def _is_folder(path: Path) -> bool:
    """Is it a directory itself, and not a link to one?"""
    return path.is_dir() and not path.is_symlink()


def _discard(path: Path) -> None:
    """Remove a folder as far as it can be removed, and nothing else of that name: rmtree waits for a FIFO."""
    if _is_folder(path):
        shutil.rmtree(path, ignore_errors=True)


def _tell_apart(folders: list[TopicFolder]) -> None:
    """Two folders may say the same name after somebody copied one: the second is served under its own."""
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
