"""The status of the broker, as far as the key of the request may see it."""

from __future__ import annotations

from starlette.responses import Response

from quoth.core.calls import ask
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.topics import answer
from quothwire import VERSION
from quothwire.protocol.messages import GetStatus, Status

_EXAMPLE = {
    "broker": {
        "server": "quothd 0.1.0",
        "uptime": 12.5,
        "topics": 2,
        "active": 1,
        "waits": 0,
        "counters": {},
    },
    "web": {"server": "quoth-web 0.1.0", "streams": 0},
}


async def show_status(call: GatewayCall) -> Response:
    """Return the counts of the broker and of this server."""
    found = await call.client.execute(ask(Status, GetStatus(limit=0), timeout=call.client.timeout))
    names = ("server", "uptime", "topics", "active", "waits", "counters")
    web = {"server": f"quoth-web {VERSION}", "streams": len(call.services.streams)}
    return answer({"broker": {name: getattr(found, name) for name in names}, "web": web})


OPERATIONS = (
    HttpOperation(
        "show_status", "GET", "/status", "Show the status",
        "The counters are there for a key with the right admin on all topics.", show_status,
        answers={200: ("The status.", (Content("application/json", {"type": "object"}, _EXAMPLE),))},
    ),
)  # fmt: skip
