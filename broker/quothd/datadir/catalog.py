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
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from quothd.datadir import topic_file
from quothd.datadir.topic_file import TopicFile
from quothlog.recovery import snapshot
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
from quothwire.errors import QuothError
from quothwire.settings import TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX, check_topic

TOPIC_BYTES = 5 * 4_096
"""What a topic takes before its first batch: a folder and four small files, a block each."""

_FOLDER = re.compile(r".*~([0-9a-f]{16})")
_SLUG_MAX = 200
_NAME_BYTES_MAX = 255
_SAFE = " !#$&'()+,-.;=@[]^_{}"
_NEW, _GONE = ".new", ".gone"
_DISK = PosixFileSystem()
_TRIAL = 2**64 - 1
"""Stands for a log's id, of which 63 bits are random, in the name of a folder that a start tries out."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A topic on disk. problem: why its settings are not to be trusted, empty if they are."""

    path: Path
    topic: TopicFile
    problem: str = ""


@dataclass
class Catalog:
    """The topics that a directory holds, and what else lies there."""

    folders: list[Folder] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def slug(name: str) -> str:
    """A topic's name as part of a file name: readable, harmless, reversible unless it had to be cut."""
    quoted = quote(name, safe=_SAFE)
    return (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted)[:_SLUG_MAX]


def scan(directory: Path, filesystem: FileSystem = _DISK) -> Catalog:
    """Find the topics below a directory and clear away what was being made or deleted."""
    catalog = Catalog()
    topics = directory / "topics"
    filesystem.make_directory(topics)
    sync_directory(filesystem, topics)  # who named a folder may have died before that was durable
    for path in sorted(topics.iterdir()):
        text, log_id = path.name.rpartition("~")[0], log_id_of(path)
        if not log_id or not _is_folder(path):
            catalog.strays.append(path.name)
        elif text in (_NEW, _GONE):
            _discard(path)
        else:
            catalog.folders.append(_folder(path, text, log_id))
    _tell_apart(catalog.folders)
    return catalog


def try_writing(directory: Path, filesystem: FileSystem = _DISK) -> None:
    """Do below `topics` what a publish does: make a folder, write, sync and rename a file, remove them.

    A full disk and a process short of descriptors are no reason not to serve: that passes. Raises
    `BrokerFailure` ``storage_failed`` if anything else is refused; nothing stays behind.
    """
    folder = directory / "topics" / f"{_NEW}~{_TRIAL:016x}"
    try:
        folder.mkdir(mode=0o700)
        write_durably(filesystem, folder / topic_file.NAME, [b"what the start tries out\n"])
        shutil.rmtree(folder)
    except OSError as problem:
        _discard(folder)
        if problem.errno not in DISK_FULL | PROCESS_SHORT:
            raise storage_failed(problem, folder) from problem


def folder_at(path: Path) -> Folder | None:
    """The topic whose folder this is; None if its name is not that of one."""
    text, log_id = path.name.rpartition("~")[0], log_id_of(path)
    return _folder(path, text, log_id) if log_id and text not in (_NEW, _GONE) else None


def place_of(directory: Path, topic: TopicFile) -> Path:
    """Where the folder of a topic lies."""
    return directory / "topics" / f"{slug(topic.name)}~{topic.log_id:016x}"


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
    path = place_of(directory, topic)
    assert not path.exists(), "what lies there would be removed if this went wrong"
    topics = path.parent
    beside = topics / f"{_NEW}~{topic.log_id:016x}"
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
    gone = path.with_name(f"{_GONE}~{path.name.rpartition('~')[2]}")
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


def _folder(path: Path, text: str, log_id: int) -> Folder:
    try:
        topic = topic_file.decode(snapshot.DISK.open(path / topic_file.NAME).read(topic_file.BYTES_MAX, 0))
        check_topic(topic.name)
        if topic.log_id == log_id:
            return Folder(path, topic)
        if snapshot.holds(path, log_id):
            problem = "the settings are those of another topic"
        else:
            problem, log_id = "the folder is named after another log", topic.log_id  # it was copied
    except OSError as missing:
        problem = f"the settings file cannot be read: {missing.strerror}"
    except QuothError as damaged:
        problem = damaged.text
    name = unquote(text, errors="replace").replace("/", "_") or path.name
    # Synced is the level that cannot promise too little; with the limits unknown nothing is removed.
    return Folder(path, TopicFile(name, log_id, TopicSettings(durability="synced")), problem)


def _tell_apart(folders: list[Folder]) -> None:
    """Two folders may say the same name after somebody copied one: the second is served under its own."""
    taken: set[str] = set()
    for row, folder in enumerate(folders):
        topic = folder.topic
        if topic.name in taken:
            short = topic.name.encode()[: TOPIC_BYTES_MAX - 17].decode(errors="ignore")
            name = f"{short}~{folder.path.name[-16:]}"
            problem = folder.problem or f"another folder holds a topic {topic.name!r}"
            settings = TopicSettings(durability="synced")
            folders[row] = Folder(folder.path, TopicFile(name, topic.log_id, settings), problem)
        taken.add(folders[row].topic.name)


def is_folder_name(name: str) -> bool:
    """Can this be the name of a topic's folder, and of nothing elsewhere?"""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return (
        size <= _NAME_BYTES_MAX
        and name[:1] != "."
        and not {"/", "\0"} & {*name}
        and bool(log_id_of(Path(name)))
    )


def log_id_of(folder: Path) -> int:
    """The id in the name of a topic's folder, 0 for a name that has none."""
    match = _FOLDER.fullmatch(folder.name)
    return int(match[1], 16) if match else 0
