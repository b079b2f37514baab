"""Work: what is done with every system, and who does it in which way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from quothbench.load.clients import Clients
from quothbench.load.clients import Work as Task
from quothwire.errors import QuothError, error

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CALL = 100
"""Messages that are published in one call."""

Ready = Callable[[], None]
"""What a client calls once everything is prepared; see `Clients`."""


class Work(StrEnum):
    """What is done, called as Quoth calls it."""

    PUBLISH = "publish([100])"
    SEND = "producer.send"
    BATCHES = "batches()"
    READ = "read(limit=10000)"
    RAW_WRITE = "raw write"
    RAW_READ = "raw read"


class Way(NamedTuple):
    """A way to do some work. measure: does it once; returns messages a second.

    alike: step by step what Quoth does, though it may not be the fastest.
    """

    name: str
    measure: Callable[[], float]
    alike: bool = False


class Side(Protocol):
    """A system whose server runs."""

    def ways(self, work: Work) -> Sequence[Way]:
        """The ways to do some work, none if it is not for this system."""


class Driven:
    """A server on a port of loopback, with the client process that drives it."""

    def __init__(self, port: int, clients: Clients) -> None:
        self._port = port
        self._clients = clients

    def _rate(self, messages: int, task: Task, *arguments: object) -> float:
        """Messages a second of a task, which gets the port and the arguments and returns its seconds."""
        (done,) = self._clients.run(task, (self._port, *arguments))
        return messages / float(done.result)


class Peer(NamedTuple):
    """A system that Quoth is compared with.

    durability: the level of all that is written. promise: what that is worth. missing: why it cannot run
    here, or nothing. versions: of all that takes part. serving: runs a server on a directory.
    """

    durability: str
    promise: str
    missing: Callable[[], str]
    versions: Callable[[], str]
    serving: Callable[[Path, Clients], AbstractContextManager[Side]]


def missing(programs: Mapping[str, str], modules: Sequence[str]) -> str:
    """What is not installed and how that is changed, or nothing. programs: each with its Debian package."""
    for program, package in programs.items():
        if shutil.which(program) is None:
            return f"{program} is not installed, or not in PATH: apt install {package}"
    for module in modules:
        if find_spec(module) is None:
            return f"the Python library {module} is not installed: pip install {module}"
    return ""


def foreign(name: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Tell what goes wrong in somebody else's library as an error of ours, which a client can hand back."""

    def wrap(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
            try:
                return function(*arguments, **options)
            except QuothError:
                raise
            except Exception as problem:
                text = f"{name}: {type(problem).__name__}: {problem}"
                raise error("internal", text, "is this version of its client the right one?") from problem

        return run

    return wrap
