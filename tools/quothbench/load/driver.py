"""Load: requests that were encoded beforehand, so many of them on their way at once.

Nothing is encoded, checked or decoded while time is taken, so the client costs as little as a client can and
the broker is what is measured. The same lines drive a broker and a bare loop.
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

from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Publish
from quothwire.protocol.operations import Request

Frames = list[bytes]

VALUE = bytes(range(32, 132))
"""What a message holds where nothing else is asked for: 100 bytes."""
WINDOW = 32
"""Requests that are on their way where nothing else is asked for."""
COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
PATIENCE_MS = 60_000
_OK = 1


@contextmanager
def dealer(url: str) -> Iterator[zmq.Socket[bytes]]:
    """A socket for requests.

    Its context is the one of this process: the end of another would wait for ever, if an interrupt came
    between making the socket and closing it.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, PATIENCE_MS)
        socket.set(zmq.SNDTIMEO, PATIENCE_MS)
        socket.connect(url)
        yield socket


def publishes(topic: str, values: Sequence[bytes], count: int, durability: str = "") -> list[Frames]:
    """Requests that publish the same values, with the sequences of a producer that is new to the broker."""
    return list(islice(endless_publishes(topic, values, durability), count))


def endless_publishes(topic: str, values: Sequence[bytes], durability: str = "") -> Iterator[Frames]:
    """The same without an end: only a header is made for each, which takes 3 us when it is asked for."""
    plain = batch.encode(values)
    header, body = batch.parse_header(plain, 0), plain[batch.HEADER_BYTES :]
    producer = secrets.randbits(63) + 1
    for sequence in count_from(1):
        payload = batch.stamp(header._replace(producer=producer, sequence=sequence), 0) + body
        yield [b"", *binary_codec.encode_request(Publish(durability), sequence - 1, topic, payload)]


def repeated(topic: str, values: Sequence[bytes], count: int) -> list[Frames]:
    """One request so many times, of no producer: it fills a topic and takes no memory here."""
    return [[b"", *binary_codec.encode_request(Publish(), 0, topic, batch.encode(values))]] * count


def requests(request: Request, topic: str, count: int) -> list[Frames]:
    """The same request so many times, numbered from 0."""
    return [[b"", *binary_codec.encode_request(request, number, topic)] for number in range(count)]


def fetches(
    topic: str,
    cursors: Sequence[int],
    records_max: int,
    bytes_max: int,
    ordinals: Sequence[int] | None = None,
) -> list[Frames]:
    """Requests that read on from each cursor. ordinals: of the first record behind each of them, if known."""
    expected = ordinals or [-1] * len(cursors)
    reads = (
        Fetch(after=after, ordinal=ordinal, records_max=records_max, bytes_max=bytes_max)
        for after, ordinal in zip(cursors, expected, strict=True)
    )
    return [[b"", *binary_codec.encode_request(read, number, topic)] for number, read in enumerate(reads)]


def keep_window(
    socket: zmq.Socket[bytes], requests: Sequence[Frames], window: int, reply_bytes: int = 0
) -> None:
    """Send requests, `window` of them on their way, until all are answered. reply_bytes: of most replies.

    Raises what a broker refuses.
    """
    send, receive = socket.send_multipart, socket.recv_multipart
    copy = len(requests[0][-1]) < COPY_BELOW_BYTES
    take = _taken if reply_bytes < COPY_BELOW_BYTES else _taken_uncopied
    for frames in requests[:window]:
        send(frames, copy=copy)
    for frames in requests[window:]:
        take(receive)
        send(frames, copy=copy)
    for _ in requests[:window]:
        take(receive)


def round_trips(
    socket: zmq.Socket[bytes], requests: Iterable[Frames], seconds: float = math.inf
) -> list[float]:
    """Send one request after the other, each when the last one is answered; returns seconds of each.

    seconds: after which no more is taken from the requests; the first one is sent in any case.
    """
    clock, took = time.perf_counter, []
    ends = clock() + seconds
    for frames in requests:
        began = clock()
        socket.send_multipart(frames)
        _taken(socket.recv_multipart)
        ended = clock()
        took.append(ended - began)
        if ended >= ends:
            break
    return took


def ask(
    socket: zmq.Socket[bytes], request: Request, topic: str = "", payload: bytes | None = None
) -> binary_codec.Answer:
    """Send one request and return its answer, decoded. Raises what a broker refuses."""
    socket.send_multipart([b"", *binary_codec.encode_request(request, 0, topic, payload)])
    return binary_codec.decode_answer(_taken(socket.recv_multipart)[1:])


def correlation(frames: Frames) -> int:
    """The number of the request that this answers. Raises what a broker refuses."""
    if frames[1][4] != _OK:
        _refuse(frames)
    return binary_codec.correlation_of(frames[1:])


def _taken(receive: Callable[..., list[bytes]]) -> list[bytes]:
    try:
        frames = receive()
    except zmq.Again:
        raise error("timed_out", f"no answer for {PATIENCE_MS / 1_000:g} s") from None
    if frames[1][4] != _OK:
        _refuse(frames)
    return frames


def _taken_uncopied(receive: Callable[..., list[zmq.Frame]]) -> None:
    try:
        frames = receive(copy=False)
    except zmq.Again:
        raise error("timed_out", f"no answer for {PATIENCE_MS / 1_000:g} s") from None
    if frames[1].bytes[4] != _OK:
        _refuse([frame.bytes for frame in frames])


def _refuse(frames: list[bytes]) -> None:
    reply = binary_codec.decode_answer(frames[1:]).reply
    assert isinstance(reply, QuothError)
    raise reply
