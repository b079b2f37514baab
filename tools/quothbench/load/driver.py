"""The driver: sends requests that were encoded beforehand, with a number of them on their way at once.

Nothing is encoded, checked or decoded while time is taken, so that a client costs as little as possible and
the server is what is measured. The same code drives a broker and the bare loop.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as count_from
from itertools import islice

import zmq

from quothbench.load.clients import Ready
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Publish, Request
from quothwire.security.key_file import read_key

Frames = list[bytes]
Requests = Callable[[], list[Frames]]
"""Encodes requests; called in the process of a client."""

VALUE = bytes(range(32, 132))
"""The default value of a message: 100 bytes."""
BATCH = batch.encode([VALUE] * 100)
"""The default batch, without a producer."""
WINDOW = 32
"""Requests on their way."""
COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
TIMEOUT_MS = 60_000
_OK = 1


@contextmanager
def dealer(url: str, key_file: str = "") -> Iterator[zmq.Socket[bytes]]:
    """Open a socket for requests. key_file: of a client, empty for a server without keys.

    It uses the context of this process: the end of another one would wait for ever if an interrupt came
    between making the socket and closing it.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, TIMEOUT_MS)
        socket.set(zmq.SNDTIMEO, TIMEOUT_MS)
        if key_file:
            key = read_key(key_file)
            socket.set(zmq.CURVE_SERVERKEY, key.server_keys[0].encode())
            socket.set(zmq.CURVE_PUBLICKEY, key.public_key.encode())
            socket.set(zmq.CURVE_SECRETKEY, key.secret_key.encode())
        socket.connect(url)
        yield socket


def publishes(topic: str, values: Sequence[bytes], count: int, durability: str = "") -> list[Frames]:
    """Return requests that publish the same values, with the sequences of a producer new to the broker."""
    return list(islice(endless_publishes(topic, values, durability), count))


def endless_publishes(topic: str, values: Sequence[bytes], durability: str = "") -> Iterator[Frames]:
    """Yield such requests without end. Only a header is made for each, which takes 3 us when it is taken."""
    plain = batch.encode(values)
    header, body = batch.parse_header(plain, 0), plain[batch.HEADER_BYTES :]
    producer = secrets.randbits(63) + 1
    for sequence in count_from(1):
        payload = batch.stamp(header._replace(producer=producer, sequence=sequence), 0) + body
        yield [b"", *binary_codec.encode_request(Publish(durability), sequence - 1, topic, payload)]


def repeated(topic: str, values: Sequence[bytes], count: int) -> list[Frames]:
    """Return one publish so many times. It has no producer, so it can be stored again and again."""
    return [[b"", *binary_codec.encode_request(Publish(), 0, topic, batch.encode(values))]] * count


def numbered(request: Request, topic: str, count: int) -> list[Frames]:
    """Return the same request so many times, numbered from 0."""
    return [[b"", *binary_codec.encode_request(request, number, topic)] for number in range(count)]


def fetches(
    topic: str,
    cursors: Sequence[int],
    records_max: int,
    bytes_max: int,
    ordinals: Sequence[int] | None = None,
) -> list[Frames]:
    """Return requests that read on from each cursor. ordinals: of the first record behind each, if known."""
    expected = ordinals or [-1] * len(cursors)
    reads = (
        Fetch(after=after, ordinal=ordinal, records_max=records_max, bytes_max=bytes_max)
        for after, ordinal in zip(cursors, expected, strict=True)
    )
    return [[b"", *binary_codec.encode_request(read, number, topic)] for number, read in enumerate(reads)]


def keep_window(socket: zmq.Socket[bytes], requests: Sequence[Frames], reply_bytes: int = 0) -> None:
    """Send requests, `WINDOW` of them on their way, until all are answered. reply_bytes: of most replies.

    Raises the error of a reply, and ``timed_out``.
    """
    send, receive = socket.send_multipart, socket.recv_multipart
    copy = len(requests[0][-1]) < COPY_BELOW_BYTES
    take = _receive if reply_bytes < COPY_BELOW_BYTES else _receive_uncopied
    for frames in requests[:WINDOW]:
        send(frames, copy=copy)
    for frames in requests[WINDOW:]:
        take(receive)
        send(frames, copy=copy)
    for _ in requests[:WINDOW]:
        take(receive)


def round_trips(
    socket: zmq.Socket[bytes],
    requests: Iterable[Frames],
    seconds: float = math.inf,
    answered: Callable[[Frames], object] | None = None,
) -> list[float]:
    """Send each request when the one before it is answered; return the seconds of each. Raises as above.

    seconds: after which no more is taken from the requests. The first one is sent in any case. answered:
    called with each reply, before the next request is taken and outside of the seconds of a call.
    """
    clock, took = time.perf_counter, []
    ends = clock() + seconds
    for frames in requests:
        began = clock()
        socket.send_multipart(frames)
        reply = _receive(socket.recv_multipart)
        ended = clock()
        took.append(ended - began)
        if answered is not None:
            answered(reply)
        if ended >= ends:
            break
    return took


def windowed(
    ready: Ready, url: str, make: Requests, warm: int = 0, reply_bytes: int = 0, key_file: str = ""
) -> float:
    """Keep `WINDOW` requests on their way; return the seconds without those of the first `warm` ones."""
    requests = make()
    with dealer(url, key_file) as socket:
        if warm:
            keep_window(socket, requests[:warm])
        ready()
        began = time.perf_counter()
        keep_window(socket, requests[warm:], reply_bytes=reply_bytes)
        return time.perf_counter() - began


def one_by_one(ready: Ready, url: str, make: Requests, warm: int = 0, key_file: str = "") -> list[float]:
    """Send one request after the other; return the seconds of each but the first `warm` ones."""
    requests = make()
    with dealer(url, key_file) as socket:
        round_trips(socket, requests[:warm])
        ready()
        return round_trips(socket, requests[warm:])


def ask(
    socket: zmq.Socket[bytes], request: Request, topic: str = "", payload: bytes | None = None
) -> binary_codec.Answer:
    """Send one request and return its answer, decoded. Raises as above."""
    socket.send_multipart([b"", *binary_codec.encode_request(request, 0, topic, payload)])
    return binary_codec.decode_answer(_receive(socket.recv_multipart)[1:])


def _receive(receive: Callable[..., list[bytes]]) -> list[bytes]:
    try:
        frames = receive()
    except zmq.Again:
        raise _timed_out() from None
    if frames[1][4] != _OK:
        _raise_error(frames)
    return frames


def _receive_uncopied(receive: Callable[..., list[zmq.Frame]]) -> None:
    try:
        frames = receive(copy=False)
    except zmq.Again:
        raise _timed_out() from None
    if frames[1].bytes[4] != _OK:
        _raise_error([frame.bytes for frame in frames])


def _timed_out() -> QuothError:
    return error("timed_out", f"no answer for {TIMEOUT_MS / 1_000:g} s")


def _raise_error(frames: list[bytes]) -> None:
    reply = binary_codec.decode_answer(frames[1:]).reply
    assert isinstance(reply, QuothError)
    raise reply
