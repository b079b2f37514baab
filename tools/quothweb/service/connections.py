"""The HTTP connections: slow ones are closed, and the head of a request is limited.

uvicorn itself limits only the time between two requests. A client that sends its head byte by byte, or reads
nothing of its answer, would hold a connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of the first line and the headers of a request."""
_HEAD_END = b"\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


class WriteTimeout(asyncio.Protocol):
    """A connection that is cut when its client reads nothing for so many `seconds`."""

    seconds = 30.0
    transport: asyncio.Transport
    _stalled: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        if self._stalled is None:
            loop = asyncio.get_running_loop()
            self._stalled = loop.call_later(self.seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._read()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._read()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class TimedSocket(WriteTimeout, WebSocketsSansIOProtocol):
    """A connection of a WebSocket."""


class TimedProtocol(WriteTimeout, HttpProtocol):
    """A connection of HTTP.

    seconds: for the head of a request, too. open_max: connections of the server; another one gets 503 and is
    closed.
    """

    open_max = 2_000

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._head_end = b""
        """The last bytes of a head that is not complete: its end may come in two reads."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.open_max:
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the timer runs until its head is complete."""
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self._start()
            if self._head_with(data) > HEAD_BYTES_MAX:
                self.transport.write(_TOO_LONG)
                self.transport.close()
                return
        super().data_received(data)
        if self.cycle is not cycle or self.transport.is_closing() or self._is_upgraded():
            self._stop()

    def _head_with(self, data: bytes) -> int:
        """Return the bytes of the head so far, without what follows it. data: what has come now."""
        end = (self._head_end + data).find(_HEAD_END)
        more = len(data) if end < 0 else end + len(_HEAD_END) - len(self._head_end)
        self._head_bytes += more
        self._head_end = (self._head_end + data)[-len(_HEAD_END) + 1 :]
        return self._head_bytes

    def _is_upgraded(self) -> bool:
        return self.transport.get_protocol() is not self

    def _start(self) -> None:
        if self._timer is None:
            self._head_bytes, self._head_end = 0, b""
            self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol_of(seconds: float, open_max: int) -> type[asyncio.Protocol]:
    """Return the class of connections of HTTP with these limits."""
    return type("LimitedProtocol", (TimedProtocol,), {"seconds": seconds, "open_max": open_max})


def socket_protocol_of(seconds: float) -> type[asyncio.Protocol]:
    """Return the class of connections of WebSockets with this limit."""
    return type("LimitedSocket", (TimedSocket,), {"seconds": seconds})
