"""Reads and writes the manifest of a backup. A folder without it holds no backup.

{"version": 1, "topics": [                              one line of JSON, hashes in hex
    {"folder": ..., "name": ..., "log": ..., "settings": {...}, "until": ..., "newest": ..., "last": ...,
     "first_ordinal": ..., "end_ordinal": ..., "segments": [
        {"floor": ..., "bytes": ..., "hash": ..., "index": {"bytes": ..., "hash": ...} or null}, ...],
     "groups": {"until": ..., ..., "segments": [...]} or null}, ...]}
XXXXXXXXXXXXXXXX                                        xxh3-64 of that line, in hex
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from quothlog import file_format
from quothlog.backup.backup import Archive, KeptFile, KeptSegment
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.file_format import HORIZON_US
from quothlog.recovery.snapshot import DISK
from quothlog.storage.filesystem import write_durably
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.settings import TopicSettings
from quothwire.text.paths import STRANGE
from quothwire.topic import check_topic

NAME = "backup.json"
BYTES_MAX = 256 * 2**20
"""A segment takes 200 bytes, so this describes 80 TB."""


@dataclass(frozen=True)
class SavedTopic:
    """A topic in a backup. folder: the name of its folder there. groups: None if it has no group."""

    folder: str
    topic: TopicFile
    archive: Archive
    groups: Archive | None = None

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return self.archive.bytes + (self.groups.bytes if self.groups is not None else 0)


def save(directory: Path, topics: Mapping[str, SavedTopic]) -> None:
    """Write the manifest of a backup durably and atomically. Raises OSError."""
    content = {"version": file_format.VERSION, "topics": [_row(one) for one in topics.values()]}
    write_durably(DISK, directory / NAME, [topic_file.checked_line(content)])


def load(directory: Path) -> dict[str, SavedTopic] | None:
    """Read the manifest of a backup: its topics by their folders; returns None without one.

    The file may be forged with a right checksum, so every field is checked, and none leads out of the backup.
    Raises `Damaged`, ``unsupported_version`` or ``bad_setting``.
    """
    path = directory / NAME
    data = _content(path)
    if data is None:
        return None
    line = topic_file.line_of(data)
    if line is None:
        raise error("damaged", f"{path} does not check", _HINT)
    try:
        content = _checked_map(_parsed(line), _VERSION)
        if content["version"] != file_format.VERSION:
            raise file_format.of_another_version(f"{path} is a backup", content["version"])
        topics = [_saved(row) for row in _checked_map(content, _TOPICS)["topics"]]
    except ValueError as problem:
        raise error("damaged", f"{path} is no manifest: {str(problem)[:200]}", _HINT) from None
    except QuothError as problem:
        if problem.code in ("unsupported_version", "bad_setting"):
            raise
        raise error("damaged", f"{path} is no manifest: {problem.text}", _HINT) from None
    return {one.folder: one for one in topics}


def _content(path: Path) -> bytes | None:
    """Read the file; returns None without one. Raises `Damaged` if it is no regular file, or OSError."""
    try:
        file = DISK.open(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        if problem.errno in STRANGE:
            raise error("damaged", f"{path}: {problem.strerror}", _HINT) from None
        raise
    if (size := file.size()) > BYTES_MAX:
        raise error("damaged", f"{path} has {size} bytes, at most {BYTES_MAX}", _HINT)
    return file.read(size, 0)


def _parsed(line: bytes) -> object:
    """Parse JSON. Raises ValueError without the text of Python's parser."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("its first line is no JSON") from None


_HINT = "take another backup; the files of this one are as they were"


# -- the checks of fields -----------------------------------------------------------------------------------


_Check = Callable[[object], bool]


def _number(least: int, most: int) -> _Check:
    """Make the check of a whole number in a range."""
    return lambda value: type(value) is int and least <= value <= most


_POINTER = _number(0, POINTER_MAX)
_COUNT = _number(0, 2**63 - 1)
_FILE: dict[str, _Check] = {
    "bytes": _COUNT,
    "hash": lambda value: isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16}", value) is not None,
}
_SEGMENT: dict[str, _Check] = {
    **_FILE,
    "floor": _number(1, POINTER_MAX),
    "index": lambda value: value is None or bool(_checked_map(value, _FILE)),
}
_ARCHIVE: dict[str, _Check] = {
    "until": _POINTER,
    "newest": _number(0, POINTER_MAX - 2 * HORIZON_US),  # a restored log goes on above it
    "last": _POINTER,
    "first_ordinal": _COUNT,
    "end_ordinal": _COUNT,
}
"""The fields of an `Archive`, without its segments."""
_TOPIC: dict[str, _Check] = {
    "folder": lambda value: isinstance(value, str) and topic_folder.is_folder_name(value),
    "name": lambda value: isinstance(value, str) and bool(check_topic(value)),
    "log": topic_file.is_log_id,
    "settings": lambda value: isinstance(value, dict),
    **_ARCHIVE,
    "segments": lambda value: isinstance(_checked_list(value, _SEGMENT), list),
}
_GROUPS: dict[str, _Check] = {**_ARCHIVE, "segments": _TOPIC["segments"]}
_VERSION: dict[str, _Check] = {"version": lambda value: type(value) is int}
"""Checked first: a manifest of another version may have any other fields."""
_TOPICS: dict[str, _Check] = {"topics": lambda value: isinstance(_checked_list(value, _TOPIC), list)}


def _checked_map(value: object, checks: Mapping[str, _Check]) -> dict[str, Any]:
    """Return a map whose fields pass their checks; ignores other fields. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:80]!r} stands where a map has to be")
    for name, check in checks.items():
        if name not in value:
            raise ValueError(f"it lacks {name!r}")
        if not check(value[name]):
            raise ValueError(f"{name} cannot be {str(value[name])[:80]!r}")
    return value


def _checked_list(value: object, checks: Mapping[str, _Check]) -> list[dict[str, Any]]:
    """Return a list of such maps. Raises likewise."""
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:80]!r} stands where a list has to be")
    return [_checked_map(one, checks) for one in value]


def _row(saved: SavedTopic) -> dict[str, Any]:
    topic = saved.topic
    return {
        "folder": saved.folder,
        "name": topic.name,
        "log": topic.log_id,
        "settings": topic.settings.to_map(),
        **_archive_row(saved.archive),
        "groups": saved.groups and _archive_row(saved.groups),
    }


def _archive_row(archive: Archive) -> dict[str, Any]:
    return {
        **{name: getattr(archive, name) for name in _ARCHIVE},
        "segments": [
            {"floor": one.segment.floor, **_file(one.segment), "index": one.index and _file(one.index)}
            for one in archive.segments
        ],
    }


def _file(kept: KeptFile) -> dict[str, Any]:
    return {"bytes": kept.bytes, "hash": f"{kept.hash:016x}"}


def _saved(row: dict[str, Any]) -> SavedTopic:
    """Make a topic from its row. Raises ValueError if fields contradict each other."""
    topic = TopicFile(row["name"], row["log"], TopicSettings().changed(row["settings"]))
    groups = row.get("groups")  # those of an earlier version have none
    kept = _archive(_checked_map(groups, _GROUPS)) if groups is not None else None
    return SavedTopic(row["folder"], topic, _archive(row), kept)


def _archive(row: dict[str, Any]) -> Archive:
    if any(one["floor"] >= other["floor"] for one, other in pairwise(row["segments"])):
        raise ValueError("segments are not in order")
    if row["first_ordinal"] > row["end_ordinal"]:
        raise ValueError(f"records from {row['first_ordinal']} to {row['end_ordinal']}")
    segments = [
        KeptSegment(
            _kept(one["floor"], one, file_format.SEGMENT_SUFFIX),
            _kept(one["floor"], one["index"], file_format.INDEX_SUFFIX) if one["index"] else None,
        )
        for one in row["segments"]
    ]
    return Archive(**{name: row[name] for name in _ARCHIVE}, segments=segments)


def _kept(floor: int, row: dict[str, Any], suffix: str) -> KeptFile:
    return KeptFile(floor, row["bytes"], int(row["hash"], 16), suffix)
