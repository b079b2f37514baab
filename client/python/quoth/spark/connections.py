"""Connections to brokers: one client for each process and address.

Spark forks its Python workers and uses them again, so a client is made by the first task that needs one and
serves all later ones. Nobody closes it: it ends with its process, which Spark kills.

Behind each task Spark has its worker collect garbage, and that looks at every object of every module that was
imported: 45 ms of processor time a task, with pyarrow and pandas. They stay for as long as the process does,
so they are taken out of its sight, and again when there are more of them.
"""

from __future__ import annotations

import gc
import os
import sys
import threading

import quoth
from quoth import Client

TIMEOUT_S = 60.0
"""How long a broker may be away before a task or a query fails; a restart takes a second or two."""

_clients: dict[tuple[int, str, float], Client] = {}
_modules = 0
"""How many were imported when they were taken out of sight."""
_lock = threading.Lock()


def client(url: str, timeout: float = TIMEOUT_S) -> Client:
    """The client of this process for a broker. timeout, and what it raises: see `quoth.connect`."""
    at = os.getpid(), url, timeout
    with _lock:
        if at not in _clients:
            _clients[at] = quoth.connect(url, timeout=timeout)
        _leave_modules_alone()
        return _clients[at]


def _leave_modules_alone() -> None:
    global _modules
    tasks = sys.modules.get("pyspark.taskcontext")
    if len(sys.modules) != _modules and tasks is not None and tasks.TaskContext.get() is not None:
        gc.freeze()
        _modules = len(sys.modules)
