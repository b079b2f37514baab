"""The engine: an append-only log in a directory, with one writer.

    from quothlog import Log

    with Log.open("/var/lib/device/readings") as log:
        log.append([b"21.5", b"21.6"])
        log.sync()
        for record in log.read(after=0):
            print(record.pointer, record.value)

This package knows nothing of sockets and topics. From the top down: a `log` consists of segments (`segment`),
a segment of batches in a file and a sparse `index`; `file_format` knows the bytes around the batches.
`producers` recognises batches that come a second time, `retention` decides what is kept.

    appending       appends batches, allocates their pointers, syncs, rolls
    reading         finds and reads batches, follows a log without its lock, queries ranges
    transactions    stages batches, and makes them a part of the log together
    recovery        opens a directory after any crash, verifies and repairs a log
    backup          copies a log beside its owner, and restores it
    importing       builds logs and data directories from the files of other programs
    appendix        reads the files of appendix, and the data directories of Poe
    storage         the ports to the operating system: files, locks, the clock
    datadir         reads the topics of a data directory as files

For applications: a `writer` gathers records and syncs them in time, a `reader` follows a log beside its
writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quothlog.appender import Appended
    from quothlog.log import Log, LogInfo
    from quothlog.reader import Reader
    from quothlog.reading.log_batch import LogBatch
    from quothlog.reading.range_query import FileRange
    from quothlog.reading.slices import LogSlice, decode
    from quothlog.reading.tailer import Missing
    from quothlog.retention import LogOptions
    from quothlog.writer import Writer

__all__ = [
    "Appended",
    "FileRange",
    "Log",
    "LogBatch",
    "LogInfo",
    "LogOptions",
    "LogSlice",
    "Missing",
    "Reader",
    "Writer",
    "decode",
]

_MODULES = {
    "Appended": "appender",
    "FileRange": "reading.range_query",
    "Log": "log",
    "LogBatch": "reading.log_batch",
    "LogInfo": "log",
    "LogOptions": "retention",
    "LogSlice": "reading.slices",
    "Missing": "reading.tailer",
    "Reader": "reader",
    "Writer": "writer",
    "decode": "reading.slices",
}
"""The module of each name, loaded when the name is used: the options alone do not load the engine."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"quothlog.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
