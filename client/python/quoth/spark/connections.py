"""Connections to brokers: one client for each process, address and key.

Spark forks its Python workers and reuses them. The first task that needs a client connects it, and later
tasks share it. It is not closed: it ends with its process, which Spark kills.

Spark's workers collect garbage after each task, which visits every object of every imported module: 45 ms of
processor time a task, with pyarrow and pandas. So the objects of modules are frozen (`gc.freeze`).
"""

from __future__ import annotations

import gc
import os
import sys
import threading

import quoth
from quoth import Client
from quothwire.errors import error

TIMEOUT_S = 60.0
"""Seconds that a broker may be unreachable before a task or a query fails. A restart takes one or two."""

_clients: dict[tuple[int, str, float, str | None], Client] = {}
_modules = 0
"""The number of imported modules when they were frozen last."""
_lock = threading.Lock()


def client(url: str, timeout: float = TIMEOUT_S, key: str | None = None) -> Client:
    """The client of this process for a broker. For timeout and errors see `quoth.connect`.

    key: the path of its key file on this machine, None for a broker without keys.
    """
    at = os.getpid(), url, timeout, key
    with _lock:
        if at not in _clients:
            _clients[at] = quoth.connect(url, key=key, timeout=timeout)
        _freeze_modules()
        return _clients[at]


def check_key_path(path: str | None) -> None:
    """Raise ``bad_request`` for a relative path of a key file: workers run in directories of their own."""
    if path is not None and not os.path.isabs(path):
        text = f"the key file {path!r} has to be the same on the driver and all executors"
        raise error("bad_request", text, "an absolute path, like /etc/quoth/alice.key")


def _freeze_modules() -> None:
    global _modules
    tasks = sys.modules.get("pyspark.taskcontext")
    if len(sys.modules) != _modules and tasks is not None and tasks.TaskContext.get() is not None:
        gc.freeze()
        _modules = len(sys.modules)
