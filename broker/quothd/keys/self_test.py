"""Proves that a broker's endpoints deny a client with an unknown key, before the broker serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from quothd.keys.authenticator import Context, Socket
from quothwire.errors import QuothError, error

DEADLINE_S = 5.0
"""A good broker denies within milliseconds."""
_DENIED = 400
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
_HINT = "the broker does not start, since its keys do not protect it; is its libzmq a release from 4.3.4 on?"


class Endpoints(NamedTuple):
    """The URLs to test: for requests, and for announcements."""

    requests: list[str]
    announcements: list[str]


def require_denials(
    context: Context,
    endpoints: Endpoints,
    server_key: str,
    pair: tuple[bytes, bytes],
    monotonic: Callable[[], float],
) -> None:
    """Connect to all URLs with a key pair that no client has, and wait until each has denied it.

    Raises `BrokerFailure` ``unusable_system`` if a handshake ends otherwise, or takes too long.
    """
    until = monotonic() + DEADLINE_S
    attempts = [(url, zmq.DEALER) for url in endpoints.requests]
    attempts += [(url, zmq.SUB) for url in endpoints.announcements]
    with ExitStack() as sockets:
        monitors = [
            (url, sockets.enter_context(_attempt(context, kind, url, server_key, pair)))
            for url, kind in attempts
        ]
        for url, monitor in monitors:
            if not monitor.poll(max(0, int((until - monotonic()) * 1_000))):
                raise _failed(f"did not deny an unknown key within {DEADLINE_S:g} s", url)
            _require_denial(recv_monitor_message(monitor), url)


def _require_denial(found: Mapping[str, Any], url: str) -> None:
    event, value = zmq.Event(found["event"]), found["value"]
    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
        raise _failed("accepts a client with an unknown key", url)
    if (event, value) != (zmq.EVENT_HANDSHAKE_FAILED_AUTH, _DENIED):
        raise _failed(f"does not ask the authenticator about a key ({event.name} {int(value)})", url)


@contextmanager
def _attempt(
    context: Context, kind: int, url: str, server_key: str, pair: tuple[bytes, bytes]
) -> Iterator[Socket]:
    """Connect a socket; yields its monitor."""
    client = context.socket(kind)
    try:
        client.set(zmq.LINGER, 0)
        client.set(zmq.IPV6, int("[" in url))
        client.set(zmq.CURVE_SERVERKEY, server_key.encode())
        client.set(zmq.CURVE_PUBLICKEY, pair[0])
        client.set(zmq.CURVE_SECRETKEY, pair[1])
        with client.get_monitor_socket(_EVENTS) as monitor:
            client.connect(url)
            yield monitor
            client.disable_monitor()
    finally:
        client.close()


def _failed(what: str, url: str) -> QuothError:
    return error("unusable_system", f"{url} {what}", _HINT)
