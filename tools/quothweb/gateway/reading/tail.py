"""Follows a topic: as server-sent events, or over a WebSocket.

Both begin behind the newest record, or where the client says; they go on through silence and restarts of the
broker, and end with the topic, the token or the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack

from starlette.responses import Response

from quoth.core.calls import ask
from quoth.core.tailing import TailState
from quoth.message import Gap
from quothweb.gateway.operation import GatewayCall
from quothweb.gateway.parameters import pointer_of
from quothweb.gateway.reading.caching import is_zipped
from quothweb.gateway.reading.formats import EVENTS, EventStream, RecordFormat, end_event
from quothweb.gateway.reading.streaming import RecordStream
from quothweb.streams import OpenStream, StreamEnded
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Advance, AdvanceTopic

RECONNECT = b"retry: 1000\n\n"
"""Milliseconds after which a browser connects again."""
SILENCE = b": nothing new\n\n"
PART_RECORDS = 200


async def follow(call: GatewayCall) -> Response:
    """Follow a topic as server-sent events. Raises `HttpProblem` if there are too many streams."""
    given = call.given
    if given["until"] is not None or given["wait"]:
        raise error("bad_request", "events have no end and wait by themselves", "leave until and wait out")
    after = await beginning(call, call.request.headers.get("last-event-id"))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept"}
    zipped = is_zipped(call.request)
    opened = ExitStack()
    stream = opened.enter_context(call.services.streams.opened(call.principal))
    return RecordStream(
        _events(call, stream, after), EVENTS, headers, is_zipped=zipped, flushes=True, held=opened
    )


async def beginning(call: GatewayCall, last_event_id: str | None) -> int:
    """Return the pointer above which a stream begins. Raises the error of a topic that cannot be read."""
    request = AdvanceTopic(0, records_max=1)
    found = await call.client.execute(ask(Advance, request, call.topic, timeout=call.client.timeout))
    after, since = call.given["after"], call.given["since"]
    if last_event_id:
        return pointer_of(last_event_id)
    if since is not None and after is not None:
        raise error("bad_request", "after and since both say where to begin", "say one of them")
    if since is not None:
        return max(0, int(since) - 1)
    start: int = found.newest if after is None else after
    return start


async def _events(call: GatewayCall, stream: OpenStream, after: int) -> AsyncIterator[bytes]:
    yield RECONNECT
    try:
        async for part in parts(call, stream, after, EventStream()):
            yield b"".join(part) or SILENCE
    except StreamEnded as end:
        yield end_event(end.reason)
    except QuothError as problem:
        reason = "deleted" if problem.code == "unknown_topic" else problem.code
        yield end_event(reason, problem.text)


async def parts(
    call: GatewayCall, stream: OpenStream, after: int, form: RecordFormat
) -> AsyncIterator[list[bytes]]:
    """Yield the records of a topic as they come, some at once; none for a silence, or a broker that is away.

    Raises `StreamEnded`, or the error with which it ends.
    """
    gaps: list[Gap] = []
    client = call.client
    state = TailState(call.topic, after, None, None, gaps.append, client._timing)
    state.reader.is_time = call.given["since"] is not None
    while True:
        try:
            found = await stream.result_of(client.execute(state.follow(client.timeout)))
        except QuothError as problem:
            pause = state.pause_after(problem)
            yield []
            await stream.sleep(pause)
            continue
        is_silent = True
        for batch in found:
            is_silent = False
            pieces = [form.gap(gap) for gap in gaps]
            gaps.clear()
            for message in batch:
                pieces.append(form.record(message))
                if len(pieces) >= PART_RECORDS:
                    yield pieces
                    pieces = []
            yield pieces
        if gaps or is_silent:
            yield [form.gap(gap) for gap in gaps]
            gaps.clear()
