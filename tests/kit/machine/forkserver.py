"""A Python that has loaded our modules and forks for each process that a test starts.

Loading them takes 0.3 to 0.5 s of processor time, which would be most of the time of the tests. A forked
process is like any other: it has a pid of its own, is a child of the test's process, and has the given
arguments, environment, directory and streams. On other systems than Linux and with QUOTH_LONG=1 a command is
executed as usual. So is one that needs another interpreter or other flags, a function before its start, or
other variables of Python or of the locale.

As a program, `forkserver.py DESCRIPTOR`, it is the server; the module may only import what Python has.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TextIO

_SCANNING = "ignore:unclosed scandir iterator:ResourceWarning"
"""A signal may come between `os.scandir` and the `with` that closes what it returns."""
_CONSTRUCTING = "ignore:Unclosed socket <zmq.Socket(zmq.UNKNOWN):ResourceWarning"
"""A signal may come while pyzmq constructs a socket, before its type is set."""
PYTHON = (sys.executable, "-W", "error", "-W", _SCANNING, "-W", _CONSTRUCTING, "-c")
"""The beginning of a command that can be forked, before its code and its arguments."""
MODULES = (
    *("quothd.main", "quothcli.application", "quoth.client", "quoth.producer", "quoth.reader"),
    "quoth.transaction",
    *("quothlog.log", "quothlog.reader", "asyncio", "logging", "rich.live", "rich.text"),
    *(f"quothcli.commands.about.{name}" for name in ("config", "ctx", "demo", "pages", "reference")),
    *(f"quothcli.commands.broker.{name}" for name in ("serve", "service", "status", "top", "topics")),
    *("quothcli.commands.broker.transaction", "quothcli.commands.doctor.command"),
    *(f"quothcli.commands.doctor.{name}" for name in ("broker", "directory", "machine", "probe")),
    *(f"quothcli.commands.files.{name}" for name in ("backup", "log")),
    *(f"quothcli.commands.records.{name}" for name in ("forward", "publish", "reading")),
    *("quothd.config.template", "quothd.config.check", "quothlog.recovery.repair", "quothlog.writer"),
)
"""The modules to load: the daemon, the command line with many commands, the client, and their imports."""
LATER = {"quothweb.main": ("quothweb.server", "quothweb.dashboard.application")}
"""By a module that a command names: what it is about to load, loaded before the first such command is forked.
It takes a second or two, so only tests that need it pay for it."""

_PR_SET_CHILD_SUBREAPER = 36
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC", "ZMQ")
"""Prefixes of the variables that Python or a library reads at its start."""


class Forked(subprocess.Popen[Any]):
    """`subprocess.Popen` of a command whose process is forked by the server of this process."""

    def _execute_child(
        self, args: Any, _1: Any, _2: Any, _3: Any, _4: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        """Replace `Popen._execute_child`, whose last arguments are the ends of the pipes."""
        _, _, _, stdin, ours_in, ours_out, stdout, ours_err, stderr = rest[:9]
        code, *arguments = args[len(PYTHON) :]
        request = {
            "code": code,
            "arguments": arguments,
            "directory": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
        }
        streams = [given if given >= 0 else number for number, given in enumerate((stdin, stdout, stderr))]
        self.pid = server().fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(stdin, ours_in, ours_out, stdout, ours_err, stderr)  # type: ignore[attr-defined]


def start(command: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
    """Start a process: forked if that is possible, else executed. popen: as for `subprocess.Popen`."""
    is_plain = tuple(command[: len(PYTHON)]) == PYTHON and not popen.keys() - _FORKED_WITH
    if _IS_POSSIBLE and is_plain and _at_start(popen.get("env") or os.environ) == _STARTED_WITH:
        return Forked(command, **popen)
    return subprocess.Popen(command, **popen)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


_IS_POSSIBLE = sys.platform == "linux" and not os.environ.get("QUOTH_LONG")
_FORKED_WITH = {"stdin", "stdout", "stderr", "text", "env", "cwd"}
_STARTED_WITH = _at_start(os.environ)


class _Server:
    """The server's process, for as long as this one lives. Any thread may use it."""

    def __init__(self) -> None:
        # Its children become those of this process, so that they are waited for and stopped as usual.
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair()
        with theirs:
            command = [*PYTHON[:-1], __file__, str(theirs.fileno())]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[theirs.fileno()])
        atexit.register(self._end)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Fork a process that does what the request says; returns its pid."""
        with self._lock, open(os.memfd_create("request"), "w+b") as body:
            body.write(json.dumps(request, ensure_ascii=True).encode())
            body.seek(0)
            socket.send_fds(self._channel, [b"?"], [body.fileno(), *streams])
            pid = int.from_bytes(self._channel.recv(8, socket.MSG_WAITALL))
            assert self._channel.recv(1) == b"!", "the fork server has ended"
            return pid

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def server() -> _Server:
    """Return the server of this process; it is started when it is needed first."""
    return _Server()


# -- the server ----------------------------------------------------------------------------------------------


def serve(channel: socket.socket) -> Mapping[str, Any]:
    """Fork for each request until the other end is closed. Returns the request in the forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on a terminal it reaches all processes of the tests
    while True:
        received, fds, _, _ = socket.recv_fds(channel, 1, 4)
        if not received:
            os._exit(0)
        with open(fds[0], "rb") as body:
            request: dict[str, Any] = json.load(body)
        for named, modules in LATER.items():
            if named in request["code"]:
                for module in modules:
                    import_module(module)
        if (between := os.fork()) == 0:
            between = os.getpid()
            if (pid := os.fork()) == 0:
                while os.getppid() == between:
                    os.sched_yield()
                channel.close()
                _become(request, fds[1:])
                return request
            channel.send(pid.to_bytes(8))
            os._exit(0)
        os.waitpid(between, 0)  # its child has another parent now
        channel.send(b"!")
        for fd in fds[1:]:
            os.close(fd)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Take over streams, directory, environment and arguments."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["-c", *request["arguments"]]
    sys.stdin = _opened(0, "rb", sys.stdin)
    sys.stdout = _opened(1, "wb", sys.stdout)
    sys.stderr = _opened(2, "wb", sys.stderr)


def _opened(fd: int, mode: str, like: TextIO) -> TextIO:
    """Open a standard stream as Python does when it starts."""
    assert isinstance(like, io.TextIOWrapper)
    at_once = like.write_through
    raw = open(fd, mode, 0 if at_once and fd else -1, closefd=False)  # noqa: SIM115
    lines = not at_once and (fd == 2 or raw.isatty())
    return io.TextIOWrapper(raw, like.encoding, like.errors, line_buffering=lines, write_through=at_once)


def _run_server(descriptor: int) -> None:
    sys.path[0] = ""  # as for code that is given as an argument
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as channel:
        request = serve(channel)
    namespace = {"__name__": "__main__"}
    exec(compile(request["code"], "<string>", "exec"), namespace)


if __name__ == "__main__":
    _run_server(int(sys.argv[1]))
