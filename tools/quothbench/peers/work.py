"""Work: what every system does, and what a system has to provide."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from quothbench.load.clients import Clients, Task
from quothwire.errors import QuothError, error

CALL = 100
"""Messages that are published in one call."""
SMALL_STORED = 30_000
"""Messages that are read in small pages: all systems can store them soon, and in the same number."""
SMALL_ROUNDS = 10
"""How often small pages read everything in one measurement."""


class Work(StrEnum):
    """The kinds of work, named after Quoth's calls."""

    PUBLISH = "publish([100])"
    SEND = "producer.send"
    BATCHES = "batches()"
    READ = "read(limit=10000)"
    READ_SMALL = "read(limit=100)"


class Way(NamedTuple):
    """A way to do some work. task: gets address, number of messages and arguments; returns seconds."""

    work: Work
    name: str
    messages: int
    task: Task
    arguments: tuple[Any, ...] = ()

    def measure(self, clients: Clients, address: object) -> float:
        """Execute the work once in a client process; return messages a second."""
        (done,) = clients.run(self.task, (address, self.messages, *self.arguments))
        return self.messages / float(done.result)


class Peer(NamedTuple):
    """A system.

    durability: the level of all writes. promise: what that means. programs: each with its Debian package.
    library: returns what its client lacks and how to get it, or nothing; called if all programs are there.
    versions: of all that takes part. serving: runs a server on a directory and yields its address. store:
    stores the messages that reads read.
    """

    durability: str
    promise: str
    programs: Mapping[str, str]
    library: Callable[[], str]
    versions: Callable[[], str]
    serving: Callable[[Path], AbstractContextManager[object]]
    store: Callable[[Any], None]
    ways: Sequence[Way]

    def missing(self) -> str:
        """Return the first thing that is not installed and how to install it, or nothing."""
        for program, package in self.programs.items():
            if shutil.which(program) is None:
                return f"{program} is not installed, or not in PATH: apt install {package}"
        return self.library()


def python_library(name: str) -> str:
    """Return that a Python library is not installed and how to install it, or nothing."""
    if find_spec(name) is None:
        return f"the Python library {name} is not installed: pip install {name}"
    return ""


@contextmanager
def foreign(name: str) -> Iterator[None]:
    """Turn an error of another system's library into one of ours, which a client can hand back."""
    try:
        yield
    except QuothError:
        raise
    except Exception as problem:
        text = f"{name}: {type(problem).__name__}: {problem}"
        raise error("internal", text, "is this version of its client the right one?") from problem
