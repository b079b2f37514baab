"""The folder of one topic in a data directory: its name, and what its settings file says.

DIR/topics/SLUG~LOGID/topic.json, *.seg, ...      a topic: readable slug, its log's id in hex
DIR/topics/.new~LOGID, .gone~LOGID                being made, being deleted: the next start removes them
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothlog.recovery import snapshot
from quothwire.errors import QuothError
from quothwire.settings import TopicSettings
from quothwire.topic import check_topic

NEW, GONE = ".new", ".gone"
"""The slugs of a folder that is being made, and of one that is being deleted."""

_FOLDER = re.compile(r".*~([0-9a-f]{16})")
_SLUG_MAX = 200
_NAME_BYTES_MAX = 255
_SAFE = " !#$&'()+,-.;=@[]^_{}"


@dataclass(frozen=True, slots=True)
class TopicFolder:
    """A topic on disk. problem: why its settings cannot be trusted, empty if they can."""

    path: Path
    topic: TopicFile
    problem: str = ""


def slug(name: str) -> str:
    """Return the readable part of a folder's name. It can be reversed unless the topic's name is too long."""
    quoted = quote(name, safe=_SAFE)
    return (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted)[:_SLUG_MAX]


def path_of(directory: Path, topic: TopicFile) -> Path:
    """Return the path of a topic's folder in a data directory."""
    return directory / "topics" / f"{slug(topic.name)}~{topic.log_id:016x}"


def at(path: Path) -> TopicFolder | None:
    """Read the settings in a topic's folder. Returns None if its name is not that of such a folder."""
    text, log_id = path.name.rpartition("~")[0], log_id_of(path)
    return read(path, text, log_id) if log_id and text not in (NEW, GONE) else None


def is_folder_name(name: str) -> bool:
    """True if a topic's folder may have this name, which leads to no other directory."""
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
    """Return the log id in the name of a topic's folder, 0 for a name without one."""
    match = _FOLDER.fullmatch(folder.name)
    return int(match[1], 16) if match else 0


def read(path: Path, text: str, log_id: int) -> TopicFolder:
    """Read the settings in a topic's folder, whose name consists of this slug and this id."""
    try:
        topic = topic_file.decode(snapshot.DISK.open(path / topic_file.NAME).read(topic_file.BYTES_MAX, 0))
        check_topic(topic.name)
        if topic.log_id == log_id:
            return TopicFolder(path, topic)
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
    return TopicFolder(path, TopicFile(name, log_id, TopicSettings(durability="synced")), problem)
