"""Logs as files: which of them lie in a directory.

A directory may be that of an embedded log, a topic's folder, or a broker's whole data directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from quothlog import file_format
from quothlog.datadir import topic_folder
from quothlog.groups.group_log import FOLDER, group_log_id
from quothwire.errors import error


class FoundLog(NamedTuple):
    """The directory of a log, and the name of its topic.

    log_id: as the topic says, 0 for a log without a broker. problem: what is wrong with the topic's
    settings file, empty if nothing is.
    """

    topic: str
    directory: Path
    log_id: int = 0
    problem: str = ""


def places(directory: Path, only: str | None = None) -> list[FoundLog]:
    """The logs in a directory. Raises FileNotFoundError, or `NotFound` if the topic is not among them."""
    topics = directory / "topics"
    below = topics if topics.is_dir() else directory
    found = [place for path in sorted(below.iterdir()) if path.is_dir() and (place := _topic(path))]
    if not found and below is directory:
        found = [_topic(directory.resolve()) or FoundLog(directory.resolve().name, directory)]
    if only is None:
        return found
    chosen_ones = [place for place in found if place.topic == only]
    if not chosen_ones:
        raise error("unknown_topic", f"{directory} holds no topic {only!r}", "`quoth log ls DIR` lists them")
    return chosen_ones


def with_groups(found: Iterable[FoundLog]) -> Iterator[FoundLog]:
    """Yield logs, and behind each the log of the groups of its topic, if there is one."""
    for one in found:
        yield one
        if one.log_id and (one.directory / FOLDER).is_dir():
            own_id = group_log_id(one.log_id)
            yield FoundLog(f"{one.topic}, groups", one.directory / FOLDER, own_id, one.problem)


def data_directory(directory: Path) -> Path | None:
    """The broker's directory that this one is, or is a topic's folder of; None for a log without a broker."""
    if (directory / "topics").is_dir():
        return directory
    folder = directory.resolve()
    if folder.name == "topics" and any(map(topic_folder.log_id_of, folder.iterdir())):
        return folder.parent
    return folder.parent.parent if topic_folder.log_id_of(folder) and folder.parent.name == "topics" else None


def bytes_of_segments(log: Path) -> int:
    """Return the bytes of a log's segments, as far as they are there: they come and go beside a broker."""
    size = 0
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in log.iterdir():
            with suppress(OSError):
                size += path.stat().st_size if file_format.floor_of(path.name) else 0
    return size


def _topic(path: Path) -> FoundLog | None:
    found = topic_folder.at(path)
    return FoundLog(found.topic.name, path, found.topic.log_id, found.problem) if found else None
