"""The engine: an append-only log in a directory, with one writer.

    from quothlog import Log

    with Log.open("/var/lib/device/readings") as log:
        log.append([b"21.5", b"21.6"])
        log.sync()
        for record in log.read(after=0):
            print(record.pointer, record.value)

It knows nothing of sockets, topics or threads. From the top down: `log` is made of segments (`segment`), a
segment of batches in a file (`scan` finds them, `layout` knows the bytes around them) and a sparse `index`;
`recovery` opens a directory after anything that may have happened to it, and `successor` is the segment in
which it then goes on; `tip` is where it grows. `pointers` gives out pointers, `producers` and `applications`
recognise what comes again, and everything touches the disk through the port in `filesystem`. What is not to
be seen before all of it is there lies in `staging`; `transactions` appends it, or makes segments of it, a
`publication` by a `plan`. Around it, for programs: a `writer` gathers records and has them on the disk in
time, a `reader` follows a log that somebody else may be writing, `marks` tell how far it has been carried
elsewhere. Beside them, for people: `inspection` looks at a log, `repair` mends one that nobody has open,
`archive` copies one and `restoration` brings it back.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quothlog.appending.appender import Appended
    from quothlog.log import Log
    from quothlog.log_info import LogInfo
    from quothlog.reader import Reader
    from quothlog.reading.tailer import Missing
    from quothlog.retention import LogOptions
    from quothlog.writer import Writer

__all__ = ["Appended", "Log", "LogInfo", "LogOptions", "Missing", "Reader", "Writer"]

_HOMES = {
    "Appended": "appending.appender",
    "Log": "log",
    "LogInfo": "log_info",
    "LogOptions": "retention",
    "Missing": "reading.tailer",
    "Reader": "reader",
    "Writer": "writer",
}
"""The module of each name. It is loaded when the name is asked for: who needs the options alone does not wait
for all of the engine."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"quothlog.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
