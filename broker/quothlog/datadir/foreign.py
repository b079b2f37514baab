"""Refuses a directory that holds something else than a log, and says what it holds.

A new log in such a directory would build among the files of another program, and a reader would find nothing
in it, for ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from quothlog import file_format
from quothlog.datadir import topic_folder
from quothlog.datadir.topic_file import OTHERS
from quothlog.slabs.slab_format import holds_slabs
from quothlog.storage.filesystem import TEMPORARY_SUFFIX, is_systems, names_in
from quothwire.errors import QuothError, error, shown

_BACKUP_NAME = "backup.json"
_TOPICS_NAME, _GROUPS_NAME = "topics", "groups"
_APPENDIX = re.compile(r".+_(data|index)")
_POE = re.compile(r"[0-9]+_data")
_NEW = "give an empty or a new directory"


def refuse_foreign(directory: Path, others: Collection[str] = ()) -> None:
    """Raise `RequestError` ``bad_setting`` if a directory without segments holds what is no log's.

    others: names that the caller has put there. Ends at the first segment, so that it costs a log nothing.
    Raises FileNotFoundError if there is no directory.
    """
    found = []
    for name in names_in(directory):
        if file_format.floor_of(name):
            return
        if not _is_expected(name) and name not in others:
            found.append(name)
    if found:
        raise _error(directory, sorted(found))


def _is_expected(name: str) -> bool:
    """Return True for a name that a log's directory may have before its first segment."""
    return (
        file_format.is_ours(name)
        or is_systems(name)
        or name == _GROUPS_NAME
        or name.removesuffix(TEMPORARY_SUFFIX) in OTHERS
    )


def _error(directory: Path, names: list[str]) -> QuothError:
    """Make the error that names what is there."""
    topics = directory / _TOPICS_NAME
    if holds_slabs(names):
        what, hint = (
            "slabs of queuefka",
            "`quoth log import` makes a log of them, `quoth forward` carries them to a broker",
        )
    elif _BACKUP_NAME in names:
        what, hint = "a backup", "`quoth restore` makes a data directory of it"
    elif _TOPICS_NAME in names and topics.is_dir():
        what, hint = _topics(topics)
    elif any(map(_APPENDIX.fullmatch, names)):
        what, hint = "a segment of appendix", "`quoth log import` makes a log of it"
    else:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        what, hint = f"{shown(names[0])}{more}", _NEW
    return error("bad_setting", f"{directory} is no log's directory: it holds {what}", hint)


def _topics(topics: Path) -> tuple[str, str]:
    """Return which broker made a folder `topics`, and the hint."""
    folders = [path for path in sorted(topics.iterdir()) if path.is_dir()]
    if any(_has_segment_of_poe(names_in(path)) for path in folders if not topic_folder.log_id_of(path)):
        return "the data of Poe", "`quoth log import` makes a data directory of it"
    return (
        "the data of a broker of Quoth",
        "name the folder of one of its topics to read it, or use the broker",
    )


def _has_segment_of_poe(names: Iterable[str]) -> bool:
    return any(_POE.fullmatch(name) for name in names)
