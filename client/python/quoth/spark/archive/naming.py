"""Paths in an archive, with folders as Hive names partitions, so that other programs can read them.

    topic=orders/day=2026-01-02/01767312000000000-01767398399999999.parquet

The name of a file has the pointers of its first and its last record, and the generation of a topic that was
created again. Characters that are special in paths or for readers of partitions are written as %XX, as Hive,
Spark and pyarrow do. A name that would be too long for a folder is cut and ends in ~ and its hash; the
manifest and the footers have the whole name. The same holds for the name that readers take for "no value".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import unquote

from xxhash import xxh3_64_hexdigest

DAY_US = 86_400_000_000
SUFFIX = ".parquet"
_TOPIC, _DAY = "topic=", "day="
_SPECIAL = frozenset("\"#%'*/:=?\\{}[]^~<>|\x7f")
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name that readers of partitions take for null."""
_FOLDER_BYTES_MAX = 240
"""Of the 255 bytes that file systems allow for a name."""
_CUT_BYTES = 200
_FILE = re.compile(
    r"topic=[^/]+/day=\d{4}-\d\d-\d\d/(\d{17}-\d{17}(\.\d+)?\.parquet|\.[0-9a-f]{16}\.parquet\.tmp)"
    r"|\.[0-9a-f]{16}_manifest\.json\.tmp"
)
"""The paths of files and temporary files of an archive, but for its manifest."""


def topic_folder(topic: str) -> str:
    """The folder of a topic."""
    escaped = "".join(f"%{ord(one):02X}" if one in _SPECIAL else one for one in topic)
    if len(escaped.encode()) <= _FOLDER_BYTES_MAX and topic != _NULL:
        return _TOPIC + escaped
    begin = escaped.encode()[:_CUT_BYTES].decode(errors="ignore")
    whole = re.sub("%.?$", "", begin)  # without a part of a %XX
    return f"{_TOPIC}{whole}~{xxh3_64_hexdigest(topic.encode())}"


def name_in(folder: str) -> str:
    """The name that readers of partitions see for the topic of a folder."""
    return unquote(folder.removeprefix(_TOPIC))


def day_of(pointer: int) -> int:
    """The day of a pointer, UTC, as a number of days since 1970."""
    return pointer // DAY_US


def folder_of(topic: str, first: int) -> str:
    """The folder of a file with this first pointer."""
    day = datetime.fromtimestamp(day_of(first) * 86_400, UTC).strftime("%Y-%m-%d")
    return f"{topic_folder(topic)}/{_DAY}{day}"


def file_name(topic: str, first: int, last: int, generation: int) -> str:
    """The path of a file with the records from one pointer to another, both of the same day."""
    number = f".{generation}" if generation > 1 else ""
    return f"{folder_of(topic, first)}/{first:017d}-{last:017d}{number}{SUFFIX}"


def is_ours(name: str) -> bool:
    """True if an archive makes files of this path, relative to the archive's folder."""
    return _FILE.fullmatch(name) is not None
