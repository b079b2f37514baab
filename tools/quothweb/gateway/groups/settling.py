"""Settles records of a group: acknowledges them, gives them back, keeps them longer, or gives them up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quothweb.gateway.bodies import json_of
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import GROUP, POINTER, TOPIC
from quothweb.gateway.topics import answer
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError, error, shown
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.group_settings import LEASE_S_MAX
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements
from quothwire.protocol.text_codec import SimpleLease, decode_lease, ranges_of
from quothwire.text.quantity import parse_span

_NO_LEASE = SimpleLease(0, 0, 0)
_MEMBERS = {
    Settle.ACK: ("lease", "pointers"),
    Settle.NACK: ("lease", "pointers", "delay", "reason"),
    Settle.RELEASE: ("lease", "pointers"),
    Settle.EXTEND: ("lease", "pointers", "seconds"),
    Settle.TERM: ("lease", "pointers", "reason"),
}


async def settle(kind: Settle, call: GatewayCall) -> Response:
    """Settle the records that the body names."""
    given = await json_of(call)
    for name in given:
        if name not in _MEMBERS[kind]:
            text = f"there is no member {shown(name)}"
            raise error("bad_request", text, f"one of {', '.join(_MEMBERS[kind])}; nothing was done")
    lease = _lease(kind, given.get("lease"))
    pointers = _pointers(given.get("pointers"))
    rows = _rows(kind, pointers, lease, given)
    reason = given.get("reason", "")
    if not isinstance(reason, str):
        raise error("bad_request", f"reason is text, not {shown(reason)}", "nothing was done")
    reply = await call.client.execute(settlement_call(call, rows, lease.generation, reason))
    lost = sum(last - first + 1 for first, last in reply.lost)
    if lost >= len(pointers):
        raise HttpProblem(
            "lease_lost", "none of these records is under this lease any more", "nothing was done"
        )
    done = reply.records if kind is Settle.ACK else len(pointers) - lost
    return answer({"done": done, "late": reply.late, "lost": reply.lost, "durability": reply.durability})


def settlement_call(
    call: GatewayCall, rows: Sequence[Settlement], generation: int, reason: str = ""
) -> ClientCall[GroupSettled]:
    """Send a settlement, and return its outcome."""
    request = GroupSettle(call.given["group"], len(rows), generation, reason)
    deadline = deadline_in(call.client.timeout)
    reply = (yield RequestState(request, call.topic, encode_settlements(rows), deadline=deadline)).reply
    assert isinstance(reply, GroupSettled)
    return reply


def _lease(kind: Settle, given: object) -> SimpleLease:
    if given is None and kind is Settle.ACK:
        return _NO_LEASE
    try:
        lease = decode_lease(given.encode("ascii", "replace") if isinstance(given, str) else b"")
    except QuothError:
        text = f"lease is {shown(given)}: it has to be that of a fetch, as it was"
        raise error("bad_request", text, "nothing was done") from None
    if kind is not Settle.ACK and not lease.token:
        raise error("bad_request", "this group has no leases", "nothing was done")
    return lease


def _pointers(given: object) -> list[int]:
    if not isinstance(given, list) or not given:
        raise error("bad_request", f"pointers is a list, not {shown(given)}", "nothing was done")
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 < one <= POINTER_MAX:
            raise error("bad_pointer", f"{shown(one)} is no pointer of a record", "nothing was done")
    if len(given) > ROWS_MAX:
        raise error("too_large", f"{len(given)} pointers, at most {ROWS_MAX}", "nothing was done")
    return sorted(set(given))


def _rows(
    kind: Settle, pointers: Sequence[int], lease: SimpleLease, given: dict[str, Any]
) -> list[Settlement]:
    """Make the rows; only acks of records that follow each other are joined, so that each loss is known."""
    more = 0
    if kind is Settle.NACK and given.get("delay") is not None:
        more = 1 + _milliseconds("delay", given["delay"])
    elif kind is Settle.EXTEND:
        seconds = given.get("seconds")
        more = lease.lease_ms if seconds is None else _milliseconds("seconds", seconds)
    ranges = ranges_of(pointers) if kind is Settle.ACK else [(one, one) for one in pointers]
    return [Settlement(kind, first, last, lease.token, more) for first, last in ranges]


def _milliseconds(name: str, given: object) -> int:
    try:
        seconds = parse_span(given, infinity=None)
    except QuothError as problem:
        raise error("bad_request", f"{name}: {problem.text}", problem.hint) from None
    if not 0 <= seconds < LEASE_S_MAX:
        raise error(
            "bad_request", f"{name} is less than twelve hours, not {shown(given)}", "nothing was done"
        )
    return round(seconds * 1_000)


_ABOUT = {
    Settle.ACK: (
        "Acknowledge records",
        "They are finished, durably, with the answer. An ack after the lease counts.",
    ),
    Settle.NACK: (
        "Give records back",
        "They are handed out again after `delay`, or the backoff of the group.",
    ),
    Settle.RELEASE: (
        "Release records",
        "They are handed out again at once, and this hand-out does not count.",
    ),
    Settle.EXTEND: ("Keep records longer", "The lease lasts so many `seconds` from now on."),
    Settle.TERM: ("Give records up", "They become dead letters, with the `reason`."),
}
_SCHEMAS: dict[str, Any] = {
    "lease": {"type": "string"},
    "pointers": {"type": "array", "items": {**POINTER, "minimum": 1}, "minItems": 1, "maxItems": ROWS_MAX},
    "delay": {"type": ["string", "number"], "examples": ["5s", 5]},
    "seconds": {"type": ["string", "number"], "examples": ["1m", 60]},
    "reason": {"type": "string"},
}
_REQUEST = {"lease": "1-8112963841460668169-30000", "pointers": [1767323045000001]}
_ANSWER = {"done": 1, "late": 0, "lost": [], "durability": "written"}


def _operation(kind: Settle) -> HttpOperation:
    name = kind.name.lower()
    summary, about = _ABOUT[kind]
    schema = {
        "type": "object",
        "properties": {member: _SCHEMAS[member] for member in _MEMBERS[kind]},
        "required": ["pointers"] if kind is Settle.ACK else ["lease", "pointers"],
        "additionalProperties": False,
    }
    return HttpOperation(
        f"{name}_records", "POST", f"/topics/{{topic}}/groups/{{group}}/{name}", summary, about,
        partial(settle, kind), (TOPIC, GROUP), (Content("application/json", schema, _REQUEST),),
        {200: ("How many records it has had an effect on; ranges of those whose lease is lost.",
               (Content("application/json", {"type": "object"}, _ANSWER),))},
        needs_body=True,
    )  # fmt: skip


OPERATIONS = tuple(map(_operation, Settle))
