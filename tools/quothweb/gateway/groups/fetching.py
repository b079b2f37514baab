"""Fetches records of a group under a lease.

The lease of an answer is text without a meaning for the client, which sends it back with each settlement, as
clients of the simple protocol do. A client that dies loses its lease, and nothing else.
"""

from __future__ import annotations

import math
import time
from typing import Any

from starlette.responses import Response

from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.groups.lot import Lot
from quoth.groups.options import MEMBER_BYTES_MAX
from quoth.message import Message
from quothweb.brokers import WAIT_S
from quothweb.gateway.groups.settling import settlement_call
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import GROUP, TOPIC, Parameter, span, text_up_to, whole
from quothweb.gateway.topics import answer
from quothweb.problems import HttpProblem
from quothweb.streams import OpenStream, StreamEnded
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetch, GroupFetched
from quothwire.protocol.group_settings import LEASE_S_MAX
from quothwire.protocol.messages import WAIT_MS_MAX
from quothwire.protocol.settlement import Settle, Settlement
from quothwire.protocol.text_codec import LEASED_MAX, SimpleLease, encode_lease
from quothwire.text.record_json import record_object


async def fetch(call: GatewayCall) -> Response:
    """Fetch records; wait for the first one if the request says so."""
    with call.services.streams.opened(call.principal) as stream:
        try:
            found = await _fetched(call, stream)
        except StreamEnded:
            raise HttpProblem("shutting_down", "the wait ends with the server, or with the token") from None
    if await call.request.is_disconnected():
        await _release(call, found)
    return answer(_content(call, found))


async def _fetched(call: GatewayCall, stream: OpenStream) -> Answer:
    """Return the first answer with records, or the last one."""
    deadline = time.monotonic() + call.given["wait"]
    while True:
        left = max(0.0, deadline - time.monotonic())
        found = await stream.result_of(call.client.execute(_request(call, min(left, WAIT_S))))
        reply = found.reply
        assert isinstance(reply, GroupFetched)
        if reply.leases or reply.gone or left <= WAIT_S or await call.request.is_disconnected():
            return found


def _request(call: GatewayCall, wait: float) -> ClientCall[Answer]:
    given = call.given
    client = call.request.client
    member = given["member"] or f"{call.principal.name or 'http'}@{client.host if client else ''}"
    request = GroupFetch(
        given["group"],
        member[:MEMBER_BYTES_MAX],
        records_max=given["limit"],
        wait_ms=math.ceil(wait * 1_000),
        lease_ms=math.ceil((given["lease"] or 0) * 1_000),
    )
    deadline = deadline_in(wait + call.client.timeout)
    return (yield RequestState(request, call.topic, wait=wait, deadline=deadline))


def _content(call: GatewayCall, found: Answer) -> dict[str, Any]:
    """Convert an answer to an object. Records whose bytes do not check are in ``damaged``, as ranges."""
    reply = found.reply
    assert isinstance(reply, GroupFetched)
    lot = Lot(call.topic, found, time.monotonic(), lambda _: None)
    records: list[dict[str, Any]] = []
    while (part := lot.next()) is not None:
        records += (_record(message, part.lease.attempts) for message in part.batch)
    damaged = [(one.after + 1, one.until) for one in (*lot.damaged, *lot.left())]
    token = reply.leases[0][0] if reply.leases else 0
    lease = encode_lease(SimpleLease(reply.generation, token, reply.lease_ms)).decode() if token else None
    return {
        "topic": call.topic,
        "group": call.given["group"],
        "lease": lease,
        "lease_seconds": reply.lease_ms / 1_000,
        "records": records,
        "damaged": damaged,
        "gone": reply.gone,
    }


def _record(message: Message, attempts: int) -> dict[str, Any]:
    content = record_object(message)
    return {**content, "attempts": attempts}


async def _release(call: GatewayCall, found: Answer) -> None:
    """Give records back at once whose client has gone meanwhile: this hand-out does not count."""
    reply = found.reply
    assert isinstance(reply, GroupFetched)
    rows = [Settlement(Settle.RELEASE, first, last, token) for token, _, first, last in reply.leases if token]
    if rows:
        try:
            await call.client.execute(settlement_call(call, sorted(rows, key=_first), reply.generation))
        except QuothError:
            return  # they are handed out again when the lease ends


def _first(row: Settlement) -> int:
    return row.first


_EXAMPLE = {
    "topic": "orders", "group": "billing", "lease": "1-8112963841460668169-30000", "lease_seconds": 30.0,
    "records": [{
        "topic": "orders", "pointer": 1767323045000001, "time": "2026-01-02T03:04:05.000001Z", "key": None,
        "value": "hello", "headers": {}, "attempts": 1,
    }],
    "damaged": [], "gone": 0,
}  # fmt: skip

OPERATIONS = (
    HttpOperation(
        "fetch_group", "POST", "/topics/{topic}/groups/{group}/fetch", "Fetch records of a group",
        "Hands out records under a lease, those of other members that have lost theirs first. Settle each of "
        "them before the lease ends.",
        fetch,
        (TOPIC, GROUP,
         Parameter("limit", "The most records.", *whole(1, LEASED_MAX), default=1),
         Parameter("wait", "Time to wait for a record.", *span(0.0, WAIT_MS_MAX / 1_000), default=0.0),
         Parameter("lease", "Time until they are handed out again; by default that of the group.",
                   *span(0.01, LEASE_S_MAX)),
         Parameter("member", "A name for people, in the state of the group.", *text_up_to(MEMBER_BYTES_MAX))),
        answers={200: ("The records, perhaps none.",
                       (Content("application/json", {"type": "object"}, _EXAMPLE),))},
        shows_content=True,
    ),
)  # fmt: skip
