"""The names in an archive, laid out as Hive lays out partitions, so that others find their way without us.

    topic=orders/day=2026-01-02/01767312000000000-01767398399999999.parquet

A file is named by the pointers of its first and its last record; those of a topic that was made anew have the
number of its generation behind that. What would disturb a path or a reader of partitions is written in a
topic's name as %XX, as Hive, Spark and pyarrow do. A name that becomes too long for a folder so is cut and
ends in ~ and its hash: then the manifest and each file's footer tell it. So does the one name that means
"no value" to them.
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
"""What readers of partitions take for no value at all."""
_FOLDER_BYTES_MAX = 240
"""Of the 255 that file systems have for a name."""
_CUT_BYTES = 200
_FILE = re.compile(
    r"topic=[^/]+/day=\d{4}-\d\d-\d\d/(\d{17}-\d{17}(\.\d+)?\.parquet|\.[0-9a-f]{16}\.parquet\.tmp)"
    r"|\.[0-9a-f]{16}_manifest\.json\.tmp"
)
"""What an archive makes beside its manifest."""


def topic_folder(topic: str) -> str:
    """The folder of a topic."""
    escaped = "".join(map(_escaped, topic))
    if len(escaped.encode()) > _FOLDER_BYTES_MAX or topic == _NULL:
        return f"{_TOPIC}{_cut(topic)}~{xxh3_64_hexdigest(topic.encode())}"
    return _TOPIC + escaped


def topic_in(folder: str) -> str | None:
    """The topic of a folder; None if its name could not be that of one."""
    return None if "~" in folder else name_in(folder)


def name_in(folder: str) -> str:
    """What readers of partitions take for the topic of a folder."""
    return unquote(folder.removeprefix(_TOPIC))


def day_of(pointer: int) -> int:
    """The day of a pointer, UTC, counted from 1970."""
    return pointer // DAY_US


def file_name(topic: str, first: int, last: int, generation: int) -> str:
    """Where a file with the records from one pointer to another lies, both of the same day."""
    day = datetime.fromtimestamp(day_of(first) * 86_400, UTC).strftime("%Y-%m-%d")
    number = f".{generation}" if generation > 1 else ""
    return f"{topic_folder(topic)}/{_DAY}{day}/{first:017d}-{last:017d}{number}{SUFFIX}"


def is_ours(name: str) -> bool:
    """Is a file of this name, seen from the archive's folder, one that an archive has made?"""
    return _FILE.fullmatch(name) is not None


def _escaped(character: str) -> str:
    return f"%{ord(character):02X}" if character in _SPECIAL else character


def _cut(topic: str) -> str:
    """As much of the beginning as fits."""
    kept = ""
    for character in map(_escaped, topic):
        if len((kept + character).encode()) > _CUT_BYTES:
            break
        kept += character
    return kept
