"""The bare loop: a server that does the least that a broker can do, in the same language.

One thread. A ROUTER takes the same frames. For a write it writes the payload to a file, replies, and syncs
every 50 ms; for a read it reads as many bytes from a file in the page cache, and replies. It does not
dispatch, check, index or announce anything.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import zmq

from quothbench.load.driver import COPY_BELOW_BYTES
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Operation, Published
from quothwire.security.key_file import read_key

SYNC_S = 0.05


def main() -> None:
    """Serve until the process is ended.

    Arguments: what to print before the URL, the file, bytes of a read, the key file, which is empty for none.
    With 0 bytes the payloads of requests are appended to the file. With a key every client that knows the
    public key is served.
    """
    ready, path, read_bytes, key_file = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    if key_file:
        router.set(zmq.CURVE_SERVER, 1)
        router.set(zmq.CURVE_SECRETKEY, read_key(key_file).secret_key.encode())
    port = router.bind_to_random_port("tcp://127.0.0.1")
    file = os.open(path, os.O_RDWR | os.O_CREAT | (0 if read_bytes else os.O_APPEND), 0o600)
    print(f"{ready}tcp://127.0.0.1:{port}", flush=True)
    if read_bytes:
        _read(router, file, read_bytes)
    else:
        _write(router, file)


def _write(router: zmq.Socket[bytes], file: int) -> None:
    published = Published(0, 1, 1, 1, "written", False)
    reply = [b"", *binary_codec.encode_reply(Operation.PUBLISH, 0, published, None)]
    synced = time.monotonic()
    while True:
        router.poll(int(SYNC_S * 1_000))
        for frames in _received(router):
            os.write(file, frames[-1])
            router.send_multipart([frames[0], *reply])
            if time.monotonic() - synced >= SYNC_S:
                break
        now = time.monotonic()
        if now - synced >= SYNC_S:
            os.fdatasync(file)
            synced = now


def _read(router: zmq.Socket[bytes], file: int, size: int) -> None:
    reply = [b"", *binary_codec.encode_reply(Operation.FETCH, 0, Fetched(0, 1, 1, 0, 1), None)]
    offset, end = 0, os.fstat(file).st_size - size
    copy = size < COPY_BELOW_BYTES
    while True:
        router.poll()
        for frames in _received(router):
            router.send_multipart([frames[0], *reply, os.pread(file, size, offset)], copy=copy)
            offset = offset + size if offset + size <= end else 0


def _received(router: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    while True:
        try:
            yield router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
