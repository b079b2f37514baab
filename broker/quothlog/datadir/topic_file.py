"""The bytes of a topic's settings file, the one truth beside the log.

{"version": 1, "name": ..., "log": ..., "settings": {...}, "owner": ...}     one line of JSON
XXXXXXXXXXXXXXXX                                                             xxh3-64 of that line, in hex

The owner is there only if the topic has one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from xxhash import xxh3_64_hexdigest

from quothlog import file_format
from quothwire.errors import error
from quothwire.settings import TopicSettings

NAME = "topic.json"
BYTES_MAX = 64 * 2**10


@dataclass(frozen=True, slots=True)
class TopicFile:
    """A topic's name, the id of its log, its settings. owner: the client that created it, empty for none."""

    name: str
    log_id: int
    settings: TopicSettings
    owner: str = ""


def is_log_id(value: object) -> bool:
    """Return True if this can be the id of a log."""
    return type(value) is int and 0 < value < 2**64


def checked_line(content: object) -> bytes:
    """Encode a value as a line of JSON, and its checksum as another one."""
    line = json.dumps(content, ensure_ascii=False).encode()
    return line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n"


def line_of(data: bytes) -> bytes | None:
    """Return the first line of a file of two; None if the second one is not its checksum."""
    line, _, check = data.partition(b"\n")
    return line if check == xxh3_64_hexdigest(line).encode() + b"\n" else None


def encode(topic: TopicFile) -> bytes:
    """Encode a settings file."""
    settings = topic.settings.to_map()
    content = {
        "version": file_format.VERSION, "name": topic.name, "log": topic.log_id, "settings": settings
    }  # fmt: skip
    return checked_line({**content, "owner": topic.owner} if topic.owner else content)


def decode(data: bytes) -> TopicFile:
    """Decode a settings file. Raises `Damaged`, ``unsupported_version``, or ``bad_setting``."""
    line = line_of(data)
    if line is None:
        raise error("damaged", "the topic's settings file does not check")
    try:
        content = json.loads(line)
        if content["version"] != file_format.VERSION:
            raise file_format.of_another_version("a settings file", content["version"])
        name, log_id, owner = content["name"], content["log"], content.get("owner", "")
        if not isinstance(name, str) or not is_log_id(log_id) or not isinstance(owner, str):
            raise TypeError(name, log_id, owner)
        return TopicFile(name, log_id, TopicSettings().changed(content["settings"]), owner)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise error("damaged", "the topic's settings file holds what no broker writes there") from None
