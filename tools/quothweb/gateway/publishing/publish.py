"""Publishes the records of a request: all of them, in order, or none."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from quoth.columns import RecordColumns
from quoth.core.idempotence import Publishing
from quoth.core.options import deadline_in
from quoth.message import Ack
from quothweb.gateway.bodies import body_of, media_type_of
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import TOPIC, Parameter, choice
from quothweb.gateway.publishing.idempotence import (
    KEY_BYTES_MAX,
    IdempotentProducer,
    producer_of,
    publish_once,
)
from quothweb.gateway.publishing.record_body import MSGPACK, NDJSON, columns_of
from quothweb.gateway.topics import answer
from quothweb.problems import HttpProblem
from quothwire.batch import BATCH_BYTES_MAX, Flag
from quothwire.errors import QuothError
from quothwire.pointer import time_text
from quothwire.protocol.messages import Publish
from quothwire.settings import DURABILITIES

DECODED_AT_ONCE_BYTES = 64 * 1024
"""A larger body is decoded by another thread: lines of JSON take up to 200 ms a MiB."""
IDEMPOTENCY_KEY = "idempotency-key"
_REUSED = "send the request that had this key first, or take another key; nothing was stored"
_OVERTAKEN = "a higher number was stored before, and this one was not; it is not stored any more"


async def publish(call: GatewayCall) -> Response:
    """Publish the records of the body."""
    given = call.request.headers.getlist(IDEMPOTENCY_KEY)
    if len(given) > 1:
        raise HttpProblem("bad_request", "the header Idempotency-Key is there twice")
    producer = producer_of(call.principal.name, given[0]) if given else None
    async with body_of(call, call.services.config.body_bytes_max) as body:
        # a retry has another traceparent, and would not be recognised
        given_as, headers, traced = media_type_of(call), call.request.headers.raw, producer is None
        if len(body) > DECODED_AT_ONCE_BYTES:  # other requests go on meanwhile
            found = await asyncio.to_thread(columns_of, given_as, body, headers, traced=traced)
        else:
            found = columns_of(given_as, body, headers, traced=traced)
        if producer is None:
            ack = await call.client.publish_columns(_publishing(call, found))
        else:
            ack = await _publish_once(call, producer, found)
    location = f"{quote(call.topic, safe='')}/records/{ack.first}"
    return answer(
        _content(call.topic, ack), 201, Location=f"{call.request.scope['root_path']}/topics/{location}"
    )


def _publishing(call: GatewayCall, columns: RecordColumns) -> Publishing:
    request = Publish(call.given["durability"] or "")
    return Publishing(request, call.topic, columns, BATCH_BYTES_MAX, deadline_in(call.client.timeout))


async def _publish_once(call: GatewayCall, producer: IdempotentProducer, columns: RecordColumns) -> Ack:
    durability = call.given["durability"] or ""
    try:
        return await call.client.execute(
            publish_once(producer, call.topic, columns, durability, call.client.timeout)
        )
    except QuothError as problem:
        if problem.code == "sequence_reused":
            text = "this Idempotency-Key was used for other records"
            raise HttpProblem(problem.code, text, _REUSED) from None
        if problem.code == "out_of_sequence" and producer.flags & Flag.SPARSE:
            raise HttpProblem(problem.code, problem.text, _OVERTAKEN, retryable=False) from None
        raise


def _content(topic: str, ack: Ack) -> dict[str, Any]:
    return {
        "topic": topic,
        "first": ack.first,
        "last": ack.last,
        "first_time": time_text(ack.first),
        "last_time": time_text(ack.last),
        "count": ack.count,
        "durability": ack.durability,
        "duplicate": ack.duplicate,
    }


_EXAMPLE = _content("orders", Ack(1767323045000001, 1767323045000001, 1, "written", False))
_TEXT = {"type": "string"}
_HEADERS = (
    Parameter(
        "Idempotency-Key", "Lets a retry store once: a random UUID, or NAME/NUMBER.", str,
        {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[!-~]+$"},
        where="header", example="4f0c2f5e-8d0e-4f3b-9a53-0d7f5f0b8a11",
    ),
    Parameter("Quoth-Key", "The key of a body that is one record.", str, _TEXT, where="header"),
    Parameter("Quoth-Key-Base64", "The same in base64.", str,
              {"type": "string", "contentEncoding": "base64"}, where="header"),
    Parameter("Quoth-Header-Source", "A header of such a record; any name may stand for Source.", str, _TEXT,
              where="header"),
)  # fmt: skip
_RECORD = {"type": "object", "properties": {name: {} for name in ("value", "value_base64", "key", "headers")}}

OPERATIONS = (
    HttpOperation(
        "publish", "POST", "/topics/{topic}", "Publish records",
        "Stores all records of the body, in order, or none. A body of any other type is one record.",
        publish,
        (TOPIC,
         Parameter("durability", "The least level of the answer.", *choice(*DURABILITIES), example="synced"),
         *_HEADERS),
        bodies=(
            Content("application/octet-stream", {"type": "string", "format": "binary"}, "hello"),
            Content(NDJSON, _RECORD, '{"value": "one", "key": "k"}\n{"value_base64": "AAE="}\n'),
            Content(MSGPACK, {"type": "string", "format": "binary"}),
        ),
        answers={201: ("The place of the records.",
                       (Content("application/json", {"type": "object"}, _EXAMPLE),))},
    ),
)  # fmt: skip
