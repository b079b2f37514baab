"""Producers of requests with an Idempotency-Key: the broker recognises a retry, across restarts of both.

A key NAME/NUMBER is the batch NUMBER of the producer NAME: numbers rise, and may leave holes. Any other key
is a producer of its own, with one batch. The id of a producer follows from the name of the token and the key,
so tokens do not share producers. It is below 2^63, as the ids that clients choose are.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from quoth.columns import RecordColumns, check_size
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Ack
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import error, shown
from quothwire.protocol.messages import Publish, Published

KEY_BYTES_MAX = 255
NUMBER_MAX = 2**63 - 1
_NUMBERED = re.compile(r"(?P<name>.+)/(?P<number>[1-9][0-9]{0,18})")


class IdempotentProducer(NamedTuple):
    """The place of a request among those that are recognised. flags: its numbering."""

    producer: int
    sequence: int
    flags: int


def producer_of(principal: str, key: str) -> IdempotentProducer:
    """Return the producer and the sequence of a key. Raises ``bad_request``.

    principal: the name of the token.
    """
    if not 0 < len(key.encode("utf-8", "surrogateescape")) <= KEY_BYTES_MAX or not key.isprintable():
        text = f"Idempotency-Key is 1 to {KEY_BYTES_MAX} printable characters, not {shown(key)}"
        raise error("bad_request", text, "a random UUID, or NAME/NUMBER")
    found = _NUMBERED.fullmatch(key)
    if found is None or int(found["number"]) > NUMBER_MAX:
        return IdempotentProducer(_id_of(principal, "key", key), 1, 0)
    return IdempotentProducer(
        _id_of(principal, "name", found["name"]), int(found["number"]), Flag.SPARSE | Flag.START
    )


def _id_of(principal: str, kind: str, name: str) -> int:
    """Return the id of a producer, never 0."""
    parts = (part.encode("utf-8", "surrogateescape") for part in (principal, kind, name))
    digest = hashlib.blake2b(b"\0".join(parts), digest_size=8, person=b"quoth-web").digest()
    return (int.from_bytes(digest) >> 1) or 1


def publish_once(
    producer: IdempotentProducer,
    topic: str,
    columns: RecordColumns,
    durability: str,
    timeout: float,
) -> ClientCall[Ack]:
    """Publish a batch that the broker stores once, however often it comes."""
    payload = batch.encode(
        *columns, producer=producer.producer, sequence=producer.sequence, flags=producer.flags
    )
    check_size(payload, batch.BATCH_BYTES_MAX)
    request = RequestState(Publish(durability), topic, payload, deadline=deadline_in(timeout))
    reply = (yield request).reply
    assert isinstance(reply, Published)
    return Ack.of(reply)
