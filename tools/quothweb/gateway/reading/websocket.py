"""Follows a topic over a WebSocket: a message of JSON for each record and each gap.

The last message is ``{"end": {"reason": ...}}``. Messages of the client are ignored. A token is in the header
Authorization or in the cookie of a session, never in the path, which is logged in many places.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from quothweb.gateway.operation import GatewayCall
from quothweb.gateway.parameters import TIMESTAMP, TOPIC, Parameter, parse_path, parse_query, timestamp
from quothweb.gateway.reading.formats import Lines, encoded
from quothweb.gateway.reading.tail import beginning, parts
from quothweb.problems import HttpProblem
from quothweb.services import services_of
from quothweb.streams import REVOKED, OpenStream, StreamEnded
from quothwire.errors import QuothError

NORMAL, GOING_AWAY, POLICY, FAILED = 1000, 1001, 1008, 1011
"""Codes with which a WebSocket is closed."""
PARAMETERS = (
    TOPIC,
    Parameter("after", "A pointer or a time, exclusive; by default the end.", timestamp, TIMESTAMP),
    Parameter("since", "A pointer or a time, inclusive.", timestamp, TIMESTAMP),
)


class TopicSocket:
    """The WebSocket at the path of a topic."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept a connection and follow the topic; an error before that is an answer of HTTP."""
        socket = WebSocket(scope, receive, send)
        try:
            services = services_of(socket)
            if not services.config.payloads:
                raise HttpProblem("payloads_off", "this server shows no content of records")
            principal = services.access.principal_of(socket)
            given = parse_path(PARAMETERS, socket.path_params)
            given |= parse_query(PARAMETERS, socket.query_params.multi_items())
            with services.counted(principal):
                async with services.brokers.client_of(principal) as client:
                    request = Request({**scope, "type": "http", "method": "GET"})
                    call = GatewayCall(request, services, principal, client, given)
                    after = await beginning(call, None)
                    with services.streams.opened(principal) as stream:
                        await socket.accept()
                        await _follow(call, socket, stream, after)
        except HttpProblem as problem:
            await _refuse(socket, problem)
        except QuothError as problem:
            await _refuse(socket, HttpProblem.of(problem))


async def _refuse(socket: WebSocket, problem: HttpProblem) -> None:
    with suppress(RuntimeError):  # the server of HTTP knows no answer in place of a WebSocket
        await socket.send_denial_response(problem.response())


async def _follow(call: GatewayCall, socket: WebSocket, stream: OpenStream, after: int) -> None:
    sending = asyncio.ensure_future(_send(call, socket, stream, after))
    gone = asyncio.ensure_future(_client_gone(socket))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and not gone.done():
            reason, code = sending.result()
            await socket.send_text(encoded({"end": {"reason": reason}}).decode())
            await socket.close(code, reason)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client has gone meanwhile
    finally:
        for task in (sending, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await task


async def _send(call: GatewayCall, socket: WebSocket, stream: OpenStream, after: int) -> tuple[str, int]:
    """Send records until the stream ends; returns the reason and the code of the end."""
    try:
        async for pieces in parts(call, stream, after, Lines()):
            for piece in pieces:
                await socket.send_text(piece.rstrip(b"\n").decode())
    except StreamEnded as end:
        return end.reason, POLICY if end.reason == REVOKED else GOING_AWAY
    except QuothError as problem:
        return ("deleted", NORMAL) if problem.code == "unknown_topic" else (problem.code, FAILED)
    raise AssertionError("a stream has no end of its own")


async def _client_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
