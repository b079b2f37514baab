"""The formats that can be imported, and how a directory shows which one it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from quothlog.appendix import log_directory, poe
from quothlog.appendix.segment_format import DATA_SUFFIX
from quothlog.datadir import topic_folder
from quothlog.importing.source import ImportSource, shown_path
from quothlog.slabs import slab_source
from quothlog.slabs.slab_format import holds_slabs
from quothlog.storage.dirlock import TOPICS_NAME
from quothwire.errors import error

FORMATS: dict[str, Callable[[Path], ImportSource]] = {
    log_directory.FORMAT: log_directory.open_log,
    poe.FORMAT: poe.open_topics,
    slab_source.FORMAT: slab_source.open_slabs,
}
"""Each format, and the function that lists a source of it."""


def open_source(path: Path, wanted: str | None = None) -> ImportSource:
    """List the logs of a path. wanted: its format, one of `FORMATS`; None for the one that its names show.

    Raises FileNotFoundError if there is nothing, `RequestError` ``bad_request`` if it has no such format, or
    another OSError.
    """
    return FORMATS[wanted or _format_of(path)](path)


def _format_of(path: Path) -> str:
    """Return the format that the names in a directory show. Raises ``bad_request`` for none."""
    if not path.is_dir():
        if path.with_name(path.name + DATA_SUFFIX).is_file():
            return log_directory.FORMAT
        path.stat()  # raises the error of a path that leads nowhere
        text = f"{shown_path(path)} is no directory"
        raise error("bad_request", text, "give the directory that holds the files of a log or the topics")
    topics = path / TOPICS_NAME
    if topics.is_dir():
        if any(map(topic_folder.log_id_of, topics.iterdir())):
            hint = "a broker can be started on it; `quoth restore` puts single topics into another one"
            raise error("bad_request", f"{shown_path(path)} is a data directory of Quoth", hint)
        return poe.FORMAT
    names = [one.name for one in path.iterdir()]
    if any(name.endswith(DATA_SUFFIX) for name in names):
        return log_directory.FORMAT
    if holds_slabs(names):
        return slab_source.FORMAT
    text = (
        f"{shown_path(path)} holds no PREFIX{DATA_SUFFIX} of appendix, no folder {TOPICS_NAME!r} of Poe, and "
        "no slab of queuefka"
    )
    raise error("bad_request", text, "Poe's data directory is its setting `dir`")
