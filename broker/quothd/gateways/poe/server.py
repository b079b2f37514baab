"""The connections of Poe's clients: one request after the other, answers in the same order.

A connection ends with its client, after a time without a byte in either direction, and by an error: without
an answer then, since the protocol has none. It ends alone.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from quothd.gateways.poe.budget import ByteBudget, HeldBytes
from quothd.gateways.poe.protocol import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    PoeClose,
    PoeRead,
    PoeRecords,
    PoeRequest,
    PoeRequests,
)
from quothd.gateways.poe.rare_report import RareReport
from quothd.gateways.poe.topics import PoeTopics
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import QuothError
from quothwire.service.parent_process import report

REQUEST_BYTES, ANSWER_BYTES = 2 * (LENGTH_BYTES + FRAME_BYTES_MAX), 4 * BATCH_BYTES_MAX
"""Of the large requests, and of the answers that are fetched or large, of all connections: those who wait for
one kind do not wait for the other. A frame in work takes three times as much for a moment."""
SMALL_BYTES = 2**16
"""A connection may hold a request of this size, and an answer that its client takes, beside the budget."""
COUNT_S = 0.25
"""Between two reports of the number of connections."""
LINGER_S = 1.0
"""After the last answer bytes are taken and dropped for so long: a socket that is closed with unread bytes
takes answers that are on their way with it."""


class PoeServer:
    """Accepts connections and serves them. connections_max, idle: see `Config`."""

    def __init__(self, topics: PoeTopics, connections_max: int, idle: float) -> None:
        self.topics = topics
        self.idle = idle
        self.requests = ByteBudget(REQUEST_BYTES)
        self.answers = ByteBudget(ANSWER_BYTES)
        self.closed = RareReport("poe_closed")
        self._connections_max = connections_max
        self._connections = 0
        self._is_due = False
        self._problem: QuothError | None = None
        self._has_ended = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections on a listening socket until the task is cancelled.

        Raises the error with which the client of the broker has ended: then no request can be served.
        """
        self._report()  # an earlier process may have had connections
        server = await asyncio.start_server(self._take, sock=listener, limit=SMALL_BYTES)
        try:
            await self._has_ended.wait()
        finally:
            server.close()
        assert self._problem is not None
        raise self._problem

    def close_for(self, problem: QuothError) -> None:
        """Log the error that closes a connection; ends `serve` if it would close all others, too."""
        self.closed.put(problem=str(problem))
        if self.topics.has_ended:
            self._problem = problem
            self._has_ended.set()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until its end."""
        if self._connections >= self._connections_max:
            self.closed.put(problem=f"there are {self._connections} connections already")
            writer.transport.abort()
            return
        self._count(1)
        try:
            await _Connection(self, reader, writer).serve()
        finally:
            writer.transport.abort()
            self._count(-1)

    def _count(self, change: int) -> None:
        """Note a change of the number of connections, which is reported soon."""
        self._connections += change
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(COUNT_S, self._report)

    def _report(self) -> None:
        self._is_due = False
        report("poe_connections", connections=self._connections)


class _Connection:
    """One connection, in a task of its own."""

    def __init__(self, server: PoeServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._requests = PoeRequests()
        self._task: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Serve until the client or an error ends it."""
        self._task = asyncio.current_task()
        try:
            requests, answers = self._server.requests, self._server.answers
            with requests.holder(self._end) as held, answers.holder(self._end) as answering:
                while (request := await self._next(held)) is not None:
                    await self._answer(request, held, answering)
            await self._flush()
        except (_Idle, asyncio.CancelledError):  # it ends in any case
            return
        except OSError:  # the client has broken it off
            return
        except QuothError as problem:
            self._server.close_for(problem)
            with suppress(OSError, _Idle):
                await self._flush()

    def _end(self) -> None:
        """End the connection, which keeps others waiting with a large frame."""
        self._server.closed.put(problem="another client waits for the memory of a large frame of this one")
        assert self._task is not None
        self._task.cancel()

    async def _next(self, held: HeldBytes) -> PoeRequest | None:
        """Return the next request, None if there is none."""
        requests = self._requests
        while (found := requests.next()) is None:
            if requests.received > SMALL_BYTES and not held.size:
                await self._server.topics.newest(requests.topic)  # none is held while the topic is opened
                await self._server.requests.take(held, requests.expected, requests.topic)
                held.begin_wait()
            data = await self._receive()
            if not data:
                return None
            requests.receive(data)
        if isinstance(found, PoeClose):
            self._server.closed.put(problem=found.reason)
            return None
        return found

    async def _receive(self) -> bytes:
        """Return bytes of the client, none at its end."""
        try:
            async with asyncio.timeout(self._server.idle):
                return await self._reader.read(SMALL_BYTES)
        except TimeoutError:
            raise _Idle from None

    async def _answer(self, request: PoeRequest, held: HeldBytes, answering: HeldBytes) -> None:
        """Execute a request, and send the answer. held: of the request, given back."""
        answers = self._server.answers
        held.begin_wait(at_broker=True)
        if isinstance(request, PoeRead):
            answer = await self._read(request, answering)
        else:
            answer = await self._server.topics.put(request)
        held.end_wait()
        self._server.requests.keep(held, 0)
        answers.keep(answering, len(answer) if len(answer) > SMALL_BYTES else 0)
        answering.begin_wait()
        self._writer.write(answer)
        await self._drain()
        answering.end_wait()
        answers.keep(answering, 0)

    async def _read(self, request: PoeRead, answering: HeldBytes) -> bytes:
        """Return the answer to a read. answering: of the answer, taken once the topic has answered."""
        topics = self._server.topics
        newest = await topics.newest(request.topic)
        if request.after >= newest:
            return PoeRecords(request.limit).encode()
        await self._server.answers.take(answering, BATCH_BYTES_MAX, request.topic)  # one fetch may bring it
        answering.begin_wait(at_broker=True)
        return await topics.read(request, newest)

    async def _drain(self) -> None:
        """Wait until the client has taken most of what was written."""
        transport = self._writer.transport
        left = transport.get_write_buffer_size()
        while True:
            try:
                async with asyncio.timeout(self._server.idle):
                    return await self._writer.drain()
            except TimeoutError:
                before, left = left, transport.get_write_buffer_size()
                if left >= before:
                    raise _Idle from None

    async def _flush(self) -> None:
        """Send what was written and the end, and drop what still comes, for a moment."""
        self._writer.transport.set_write_buffer_limits(0)
        await self._drain()
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await self._reader.read(SMALL_BYTES):
                    pass


class _Idle(Exception):
    """No byte has moved for the idle time."""
