"""The spans of the records that a worker routes, in a process that traces: see `quoth.tracing`.

publish orders ──► process orders ──┬─► publish large-orders      the context that its outputs carry
                                    └─► publish copies
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quoth.groups.group import GroupMessage
from quoth.tracing import is_active
from quoth.tracing.carrier import replaced
from quothrules.routing.output_batch import OutputBatch

if TYPE_CHECKING:
    from quoth.tracing.spans import ProcessSpan, PublishSpan


class RecordSpans:
    """The spans of one record: of its work, and of what is published, by topic."""

    def __init__(self, message: GroupMessage, group: str, began: int) -> None:
        from quoth.tracing.spans import ProcessSpan

        self._headers = message.headers
        self._process: ProcessSpan = ProcessSpan(message, group, None, began)
        self._publishes: dict[str, PublishSpan] = {}
        self._batches: Sequence[OutputBatch] = ()
        """Those of the last attempt."""

    def carry(self, batches: Sequence[OutputBatch], url: str) -> None:
        """Let outputs carry the context of their span, except where a rule has changed that of the record."""
        from quoth.tracing.spans import PublishSpan, context_names

        self._batches, names = batches, context_names()
        for batch in batches:
            span = self._publishes.get(batch.target)
            if span is None:
                span = PublishSpan(batch.target, len(batch.outputs), url, self._process.context)
                self._publishes[batch.target] = span
            if added := span.headers:
                batch.outputs = [
                    one._replace(headers=replaced(one.headers, self._headers, added, names))
                    for one in batch.outputs
                ]

    def end(self, problem: BaseException | None) -> None:
        """End all of them. problem: the reason for which not all outputs are stored."""
        for batch in self._batches:
            self._publishes[batch.target].end(batch.problem or (None if batch.is_done else problem))
        self._process.end(problem)


class RouteSpans:
    """The spans of the records that one worker has in hand. Belongs to its thread.

    Records without a context make none: each of them would be a trace of its own. A record keeps its spans
    through all attempts, so that the bytes of its outputs stay the same.
    """

    def __init__(self, group: str, url: str) -> None:
        self._group = group
        self._url = url
        self._open: dict[int, RecordSpans] = {}

    def carry(self, message: GroupMessage, batches: Sequence[OutputBatch], began: int) -> None:
        """Let the outputs of a record carry the context of their spans.

        began: the time at which the evaluation of the record began, in nanoseconds since 1970.
        """
        if not batches or not is_active():
            return
        from quoth.tracing.spans import has_trace

        if message.pointer not in self._open:
            if not has_trace(message.headers):
                return
            self._open[message.pointer] = RecordSpans(message, self._group, began)
        self._open[message.pointer].carry(batches, self._url)

    def end(self, pointer: int, problem: BaseException | None = None) -> None:
        """End the spans of a record. problem: the reason for which not all of its outputs are stored."""
        if (spans := self._open.pop(pointer, None)) is not None:
            spans.end(problem)

    def give_up(self, problem: BaseException) -> None:
        """End the spans of all records, which are given back."""
        for pointer in list(self._open):
            self.end(pointer, problem)
