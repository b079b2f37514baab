"""The manifest of a backup, written last: without it there is no backup.

{"version": 1, "topics": [                              one line of JSON, hashes in hex
    {"folder": ..., "name": ..., "log": ..., "settings": {...}, "until": ..., "newest": ..., "last": ...,
     "first_ordinal": ..., "end_ordinal": ..., "segments": [
        {"floor": ..., "bytes": ..., "hash": ..., "index": {"bytes": ..., "hash": ...} or null}, ...]}, ...]}
XXXXXXXXXXXXXXXX                                        xxh3-64 of that line, in hex
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from quothd.topicfile import TopicFile
from quothlog import layout
from quothlog.archive import Archive, Kept, KeptSegment
from quothlog.filesystem import PosixFileSystem, write_durably
from quothwire.errors import error
from quothwire.settings import TopicSettings

NAME = "backup.json"


@dataclass(frozen=True)
class SavedTopic:
    """A topic in a backup. folder: where its files lie there."""

    folder: str
    topic: TopicFile
    archive: Archive


@dataclass
class Manifest:
    """What a backup holds: the topics by their folders."""

    topics: dict[str, SavedTopic] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Put it in place, durably, all of it or nothing. Raises OSError."""
        content = {"version": layout.VERSION, "topics": [_row(one) for one in self.topics.values()]}
        line = json.dumps(content, ensure_ascii=False).encode()
        data = line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n"
        write_durably(PosixFileSystem(), directory / NAME, [data])


def load(directory: Path) -> Manifest | None:
    """Read the manifest of a backup, None if there is none. Raises `Damaged`, or ``unsupported_version``."""
    path = directory / NAME
    try:
        line, _, check = path.read_bytes().partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if check != xxh3_64_hexdigest(line).encode() + b"\n":
        raise error("damaged", f"{path} does not check", "take another backup; its files are as they were")
    try:
        content = json.loads(line)
        if content["version"] != layout.VERSION:
            raise layout.of_another_version(f"{path} is a backup", content["version"])
        return Manifest({row["folder"]: _saved(row) for row in content["topics"]})
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise error("damaged", f"{path} says {problem!r}") from None


def _row(saved: SavedTopic) -> dict[str, Any]:
    topic, archive = saved.topic, saved.archive
    return {
        "folder": saved.folder,
        "name": topic.name,
        "log": topic.log_id,
        "settings": topic.settings.to_map(),
        "until": archive.until,
        "newest": archive.newest,
        "last": archive.last,
        "first_ordinal": archive.first_ordinal,
        "end_ordinal": archive.end_ordinal,
        "segments": [
            {"floor": one.segment.floor, **_file(one.segment), "index": one.index and _file(one.index)}
            for one in archive.segments
        ],
    }


def _file(kept: Kept) -> dict[str, Any]:
    return {"bytes": kept.bytes, "hash": f"{kept.hash:016x}"}


def _saved(row: dict[str, Any]) -> SavedTopic:
    topic = TopicFile(row["name"], row["log"], TopicSettings().changed(row["settings"]))
    segments = [
        KeptSegment(
            _kept(one["floor"], one, layout.SEGMENT_SUFFIX),
            _kept(one["floor"], one["index"], layout.INDEX_SUFFIX) if one["index"] else None,
        )
        for one in row["segments"]
    ]
    archive = Archive(
        row["until"], row["newest"], row["last"], row["first_ordinal"], row["end_ordinal"], segments
    )
    return SavedTopic(row["folder"], topic, archive)


def _kept(floor: int, row: dict[str, Any], suffix: str) -> Kept:
    return Kept(floor, row["bytes"], int(row["hash"], 16), suffix)
