"""Spans and contexts by the API of OpenTelemetry. Loaded only in a process that has loaded the API.

Names, kinds and attributes are those of the semantic conventions for messaging, version 1.44.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider

from quoth.batch import Batch
from quoth.columns import RecordColumns
from quoth.message import Message
from quoth.tracing.carrier import NAMES, Append, fitting, has_own_context, merged, text_of
from quothwire import VERSION
from quothwire.errors import QuothError
from quothwire.headers import encode_headers, readable_headers
from quothwire.record import RECORD_BYTES

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
LINKS_MAX = 128
"""Links of a span: as many as the SDK keeps by default."""
BATCH_BYTES = 128
"""Bytes of a batch beside its records: its header, the last offsets, padding."""
_Attributes = dict[str, str | int]
_Headers = Mapping[str, bytes]


# -- contexts -----------------------------------------------------------------------------------------------


class _HeaderGetter(Getter[_Headers]):
    """Gives a propagator the headers of a record that are text."""

    def get(self, carrier: _Headers, key: str) -> list[str] | None:
        """Return the value of a header in a list; None if there is none that can be read."""
        value = carrier.get(key)
        text = None if value is None else text_of(value)
        return None if text is None else [text]

    def keys(self, carrier: _Headers) -> list[str]:
        """Return the names of all headers."""
        return list(carrier)


_getter = _HeaderGetter()


def extracted(headers: _Headers, context: Context | None = None) -> Context:
    """Return a context with what headers bring. context: None for the current one.

    Headers come from strangers. A propagator is to ignore what it cannot read, and not all of them do: an
    error of one would make a dead letter of a record that is in order.
    """
    beneath = contexts.get_current() if context is None else context
    try:
        return propagate.extract(headers, beneath, _getter)
    except Exception as problem:
        logging.getLogger("quoth").debug("the context of a record cannot be read: %r", problem)
        return beneath


def has_trace(headers: _Headers) -> bool:
    """Return True if headers bring the context of a trace."""
    return trace.get_current_span(extracted(headers, Context())).get_span_context().is_valid


def injected(context: Context) -> dict[str, bytes]:
    """Return the headers that carry a context; none without a valid span in it."""
    if not trace.get_current_span(context).get_span_context().is_valid:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return {name: value.encode("utf-8", "replace") for name, value in carrier.items()}


_last: tuple[Context | None, dict[str, bytes]] = (None, {})
"""The context for which headers were made last, and these. A context never changes."""


def current_headers() -> dict[str, bytes]:
    """Return the headers that carry the current context, which is often that of the record before."""
    global _last
    last, current = _last, contexts.get_current()
    if last[0] is not current:
        _last = last = (current, injected(current))
    return last[1]


def context_names() -> set[str]:
    """Return the names of all headers that may carry a context."""
    return {*NAMES, *propagate.get_global_textmap().fields}


def appending_context(append: Append) -> Append:
    """Return a function that appends a record with the current context to a batch.

    Without it where there is no room for it. Costs 0.2 us for each record, and 3 us for another context.
    """

    def append_it(value: bytes, key: bytes | None, headers: _Headers | None) -> int:
        if added := current_headers():
            try:
                return append(value, key, merged(headers, added) if headers else added)
            except (QuothError, TypeError):  # too large, or headers that are no map: `append` itself says so
                pass
        return append(value, key, headers)

    return append_it


# -- publishing ---------------------------------------------------------------------------------------------


class PublishSpan:
    """The span of one publish, whose context its records carry. A context manager: its end ends the span.

    context: that of its parent, None for the current one.
    """

    def __init__(self, topic: str, count: int, url: str, context: Context | None = None) -> None:
        attributes = _attributes("publish", "send", topic) | _server(url)
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        self._is_single = count == 1
        self._links = 0
        self._beneath = contexts.get_current() if context is None else context
        self._span = _tracer().start_span(f"publish {topic}", self._beneath, SpanKind.PRODUCER, attributes)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers that carry its context; none if it is not valid."""
        return injected(_with_span(self._span, self._beneath))

    def carried(self, columns: RecordColumns, bytes_max: int) -> RecordColumns:
        """Return the records of a publish with its context, as far as each has none and has room for it.

        bytes_max: those that the batch may have. Without room for all the records stay as they are.
        """
        added = self.headers
        if not added:
            return columns
        made: dict[bytes, bytes] = {}
        for encoded in dict.fromkeys(columns.headers or [b""]):
            made[encoded] = self._joined(encoded, added)
        headers = [made[one] for one in columns.headers or [b""] * len(columns.values)]
        whole = columns._replace(headers=headers)
        return whole if _size(whole) <= bytes_max else columns

    def note_stored(self, first: int) -> None:
        """Take note of the pointer of the first record."""
        if self._is_single:
            self._span.set_attribute("messaging.message.id", str(first))

    def end(self, problem: BaseException | None = None) -> None:
        """End it. problem: the error for which nothing was stored, or that left this open."""
        if problem is not None:
            _note_failure(self._span, problem)
        self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(value)

    def _joined(self, encoded: bytes, added: _Headers) -> bytes:
        """Return encoded headers with a context; as they are if they have one, which is linked to."""
        headers = readable_headers(encoded)
        if has_own_context(headers, added) and self._links < LINKS_MAX:
            self._links += 1
            found = trace.get_current_span(extracted(headers, Context())).get_span_context()
            if found.is_valid:
                self._span.add_link(found)
        whole = fitting(headers, added)
        return encoded if whole is headers else encode_headers(whole)


def _size(columns: RecordColumns) -> int:
    """Return the bytes of a batch, or some more."""
    values, keys, headers = columns
    filled = sum(map(len, values)) + sum(map(len, filter(None, keys or ()))) + sum(map(len, headers or ()))
    return filled + RECORD_BYTES * len(values) + BATCH_BYTES


# -- consuming ----------------------------------------------------------------------------------------------


class ProcessSpan:
    """The span of the work on a record, or on several of one topic.

    context: the one in which it runs, with the span and the baggage of the record. ambient: the context
    around the work, whose span is the parent if it is valid; else the record's is that. None for an empty
    one. start: nanoseconds since 1970; None for now.
    """

    def __init__(
        self,
        given: Message | Batch | list[Message],
        group: str | None,
        ambient: Context | None,
        start: int | None = None,
    ) -> None:
        records = [given.headers] if isinstance(given, Message) else _headers_of(given)
        attributes = _attributes("process", "process", _topic_of(given))
        if group := group or getattr(given, "_group", None):
            attributes["messaging.consumer.group.name"] = group
        beneath = Context() if ambient is None else ambient
        if isinstance(given, Message):
            around = trace.get_current_span(beneath)
            beneath = extracted(given.headers, beneath)
            attributes["messaging.message.id"] = str(given.pointer)
            if attempts := getattr(given, "attempts", 0):
                attributes["messaging.quoth.message.attempts"] = attempts
            if around.get_span_context().is_valid:
                beneath = trace.set_span_in_context(around, beneath)
        else:
            attributes["messaging.batch.message_count"] = len(given)
        name = f"process {attributes['messaging.destination.name']}"
        links = list(_links(records))
        self.span = _tracer().start_span(name, beneath, SpanKind.CONSUMER, attributes, links, start)
        self.context = _with_span(self.span, beneath)

    def end(self, problem: BaseException | None = None) -> None:
        """End it. problem: the error that has ended the work."""
        if problem is not None:
            self.span.record_exception(problem)
            _note_failure(self.span, problem)
        self.span.end()


@contextmanager
def processing(
    given: Message | Batch | Iterable[Message], group: str | None, *, is_handler: bool = False
) -> Iterator[None]:
    """Make the span of a block that handles records current in it. is_handler: see `handling`."""
    records = given if isinstance(given, Message | Batch) else list(given)
    if not records:
        yield
        return
    process = ProcessSpan(records, group, None if is_handler else contexts.get_current())
    token = contexts.attach(process.context)
    problem: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        problem = raised
        raise
    finally:
        contexts.detach(token)
        process.end(problem)


def _headers_of(given: Batch | list[Message]) -> Iterable[_Headers]:
    return given.headers or () if isinstance(given, Batch) else (one.headers for one in given)


def _topic_of(given: Message | Batch | list[Message]) -> str:
    return given[0].topic if isinstance(given, list) else given.topic


def _links(records: Iterable[_Headers]) -> Iterator[Link]:
    """Yield a link to each span that has published some of the records."""
    names = sorted(context_names())
    seen: set[tuple[bytes | None, ...]] = set()
    for headers in records:
        context = tuple(headers.get(name) for name in names)
        if context in seen or not any(context):
            continue
        seen.add(context)
        found = trace.get_current_span(extracted(headers, Context())).get_span_context()
        if found.is_valid:
            yield Link(found)
        if len(seen) >= LINKS_MAX:
            return


# -- spans --------------------------------------------------------------------------------------------------

_tracer_of: tuple[TracerProvider | None, Tracer | None] = (None, None)


def _tracer() -> Tracer:
    """Return the tracer of the provider that the application has set: making one takes some microseconds."""
    global _tracer_of
    provider = trace.get_tracer_provider()
    used, tracer = _tracer_of
    if tracer is None or used is not provider:
        tracer = provider.get_tracer("quoth", VERSION, SCHEMA)
        _tracer_of = (provider, tracer)
    return tracer


def _with_span(span: Span, beneath: Context) -> Context:
    """Return a context with a span in it.

    Without an SDK early versions of the API make a span that has no context, even below one that has.
    """
    return trace.set_span_in_context(span, beneath) if span.get_span_context().is_valid else beneath


def _attributes(name: str, kind: str, topic: str) -> _Attributes:
    return {
        "messaging.system": "quoth",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


@cache
def _server(url: str) -> _Attributes:
    """Return the attributes of the address of a broker."""
    parts = urlsplit(url)
    if parts.scheme != "tcp" or parts.hostname is None:
        return {"server.address": f"{parts.netloc}{parts.path}"} if url else {}
    found: _Attributes = {"server.address": parts.hostname}
    if parts.port:
        found["server.port"] = parts.port
    return found


def _note_failure(span: Span, problem: BaseException) -> None:
    """Note the error that has ended the work of a span. A generator that is closed was given up."""
    kind = type(problem)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(problem, QuothError):
        name = problem.code
    elif isinstance(problem, GeneratorExit):
        name = "cancelled"
    span.set_attribute("error.type", name)
    span.set_status(StatusCode.ERROR, str(problem))
