"""The bare loop: what a broker cannot be faster than, written like one in the same language.

One thread. A ROUTER takes the same frames; for a write it writes the payload to a file, replies, and syncs
every 50 ms; for a read it reads as many bytes from a file, which the system has in memory, and replies. It
dispatches, checks, indexes and announces nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from quothbench.load.clients import end_with_parent
from quothbench.load.driver import COPY_BELOW_BYTES
from quothwire.errors import error
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Operation, Published

SYNC_S = 0.05
START_S = 60.0


class Bare(NamedTuple):
    """A bare loop that runs in a process of its own."""

    url: str
    pid: int


@contextmanager
def bare_loop(path: Path, read_bytes: int = 0) -> Iterator[Bare]:
    """Run one on a file. read_bytes: answer each request with so many bytes of it; 0: write what comes."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(theirs, path, read_bytes), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise error("timed_out", f"the bare loop did not begin within {START_S:g} s")
        assert process.pid is not None
        yield Bare(ours.recv(), process.pid)
    finally:
        process.terminate()
        process.join()


def _run(pipe: Connection[Any, Any], path: Path, read_bytes: int) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever runs this, and ends it
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    file = os.open(path, os.O_RDWR | os.O_CREAT | (0 if read_bytes else os.O_APPEND), 0o600)
    pipe.send(f"tcp://127.0.0.1:{port}")
    if read_bytes:
        _read(router, file, read_bytes)
    else:
        _write(router, file)


def _write(router: zmq.Socket[bytes], file: int) -> None:
    answer = [
        b"",
        *binary_codec.encode_reply(Operation.PUBLISH, 0, Published(0, 1, 1, 1, "written", False), None),
    ]
    synced = time.monotonic()
    while True:
        router.poll(int(SYNC_S * 1_000))
        for frames in _waiting(router):
            os.write(file, frames[-1])
            router.send_multipart([frames[0], *answer])
            if time.monotonic() - synced >= SYNC_S:
                break
        now = time.monotonic()
        if now - synced >= SYNC_S:
            os.fdatasync(file)
            synced = now


def _read(router: zmq.Socket[bytes], file: int, size: int) -> None:
    answer = [b"", *binary_codec.encode_reply(Operation.FETCH, 0, Fetched(0, 1, 1, 0, 1), None)]
    offset, end = 0, os.fstat(file).st_size - size
    copy = size < COPY_BELOW_BYTES
    while True:
        router.poll()
        for frames in _waiting(router):
            router.send_multipart([frames[0], *answer, os.pread(file, size, offset)], copy=copy)
            offset = offset + size if offset + size <= end else 0


def _waiting(router: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    while True:
        try:
            yield router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
