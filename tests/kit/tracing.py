"""The SDK of OpenTelemetry in tests: what a program that traces has, with the finished spans in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Tracer

from kit.deadlines import eventually


class Traces:
    """The spans that have ended, and the tracer of the program."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer: Tracer = self.provider.get_tracer("a program")

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name, in the order of their ends."""
        return [one for one in self._memory.get_finished_spans() if one.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name, as soon as it has ended."""
        eventually(lambda: self.named(name), f"{name} has ended")
        (found,) = self.named(name)
        return found

    @property
    def names(self) -> list[str]:
        """The names of all spans, sorted."""
        return sorted(one.name for one in self._memory.get_finished_spans())


@contextmanager
def traced() -> Iterator[Traces]:
    """Let this process trace inside the block. The API sets a provider once, so this replaces it."""
    traces = Traces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", traces.provider)
        yield traces


def context_in(headers: Mapping[str, bytes]) -> tuple[int, int]:
    """Return the ids of trace and span in the header of W3C, which a test reads by itself."""
    version, trace_id, span_id, _ = headers["traceparent"].decode("ascii").split("-")
    assert version == "00"
    return int(trace_id, 16), int(span_id, 16)


def ids_of(span: ReadableSpan | SpanContext | None) -> tuple[int, int]:
    """Return the ids of trace and span."""
    context = span.get_span_context() if isinstance(span, ReadableSpan) else span
    assert context is not None
    return context.trace_id, context.span_id
