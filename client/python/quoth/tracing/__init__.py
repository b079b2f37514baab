"""Trace context in the headers of records, and spans, by the API of OpenTelemetry: see `client/TRACING.md`.

import quoth.tracing

for message in group:
    with quoth.tracing.consuming(message):
        bill(message.value)

A process traces once it has imported ``opentelemetry.trace``: it can have no span before. So this package
looks for that module among those that are loaded, and loads nothing of OpenTelemetry on its own account. The
variable ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` turns it off where it names ``quoth``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

from quoth.tracing.carrier import Append, fitting
from quoth.tracing.carrier import headers_from_http as headers_from_http

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from quoth.batch import Batch
    from quoth.message import Message
    from quoth.tracing.spans import PublishSpan

__all__ = ["consuming", "context_of", "headers_from_http", "with_context"]

API = "opentelemetry.trace"
DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""Names the instrumentations that an application does not want, divided by commas; ``*`` names all."""
OWN_TOPICS = "quoth."


def consuming(
    given: Message | Batch | Iterable[Message], *, group: str | None = None
) -> AbstractContextManager[None]:
    """Make a span of the block that handles a message, a batch or several messages of one topic.

    The span is current inside the block. It links to the spans that have published the records. It is a child
    of the current span; without one, of the span that has published a single message, whose baggage the block
    has, too. An error that leaves the block is noted. group: the name of the group, which messages and
    batches of a `ConsumerGroup` know by themselves. Does nothing in a process that does not trace, or without
    a record. For ``with`` in coroutines, too.

    Handlers of `Client.subscribe` are called in such a block.
    """
    if not is_active():
        return nullcontext()
    from quoth.tracing.spans import processing

    return processing(given, group)


def context_of(message: Message, context: Context | None = None) -> Context:
    """Return the context of OpenTelemetry that a message brings: its trace, and its baggage.

    context: what it is added to, None for the current context. What cannot be read in the headers is left
    out. Raises `ImportError` if the API is not installed.
    """
    from quoth.tracing.spans import extracted

    return extracted(message.headers, context)


def with_context(headers: Mapping[str, bytes] | None = None) -> Mapping[str, bytes]:
    """Return headers with the context of the current span, for records that no client publishes.

    As for an embedded log. Headers that have a context, or no room for it, stay as they are.
    """
    if not is_active():
        return headers or {}
    from quoth.tracing.spans import current_headers

    return fitting(headers or {}, current_headers())


# -- for the client -----------------------------------------------------------------------------------------


def is_active() -> bool:
    """Return True if this process traces."""
    return API in sys.modules and not _is_disabled()


@cache
def _is_disabled() -> bool:
    """Return True if the environment has turned it off, as it was at the first use."""
    return not {"quoth", "*"}.isdisjoint(map(str.strip, os.environ.get(DISABLED, "").split(",")))


def appending(append: Append) -> Append:
    """Return a function that appends records with the context of the current span to a batch.

    In a process that does not trace it is the given one: then a record costs what it did.
    """
    if not is_active():
        return append
    from quoth.tracing.spans import appending_context

    return appending_context(append)


def sending(topic: str, count: int, url: str) -> PublishSpan | None:
    """Return the span of a publish of so many records, which the caller enters; None without tracing.

    What Quoth's own programs publish for themselves is no part of a trace.
    """
    if not is_active() or str(topic).startswith(OWN_TOPICS):
        return None
    from quoth.tracing.spans import PublishSpan

    return PublishSpan(topic, count, url)


def handling(message: Message) -> AbstractContextManager[None]:
    """Make a span of the call of a handler. It is a child of the span that has published the message.

    `consuming` prefers the current span, which is without a meaning for a run of subscriptions.
    """
    if not is_active():
        return nullcontext()
    from quoth.tracing.spans import processing

    return processing(message, None, is_handler=True)
