"""Sets of topics, as the clients file names them: names, prefixes with a `*` behind, or `*` for all.

A `*` counts at the end alone. A topic whose name has a `*` is in such a set through a prefix in front of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quothwire.errors import error
from quothwire.topic import check_topic

EVERY = "*"
_END = b"\0"
"""The end of a topic's name in an announcement. No name has this character."""


def check_pattern(pattern: str) -> str:
    """Return a pattern. Raises `RequestError` ``bad_topic`` for one that no topic can match."""
    name = pattern.removesuffix(EVERY)
    if EVERY in name:
        hint = f"a prefix and *: {name.partition(EVERY)[0]}*"
        raise error("bad_topic", f"{pattern!r} has a * that is not its end", hint)
    if not pattern.endswith(EVERY) or name not in ("", ".", ".."):
        check_topic(name)
    return pattern


class _Span(NamedTuple):
    """A range of names as bytes. high: exclusive, None for no end. beginning: of the announcements."""

    low: bytes
    high: bytes | None
    beginning: bytes


class TopicScope:
    """A set of topics. Immutable.

    patterns: as given, see `check_pattern`. One that another one covers makes no difference.
    """

    __slots__ = ("_exact", "_lows", "_prefixes", "_spans", "patterns")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        given = set(self.patterns)
        prefixes: list[str] = []
        for prefix in sorted(pattern.removesuffix(EVERY) for pattern in given if pattern.endswith(EVERY)):
            if not (prefixes and prefix.startswith(prefixes[-1])):
                prefixes.append(prefix)
        self._prefixes = prefixes
        names = (pattern for pattern in given if not pattern.endswith(EVERY))
        self._exact = frozenset(name for name in names if not self._has_prefix_of(name))
        spans = [_span_of_prefix(prefix.encode()) for prefix in prefixes]
        spans += [_Span(raw, raw + _END, raw + _END) for raw in map(str.encode, self._exact)]
        self._spans = sorted(spans, key=lambda span: span.low)
        self._lows = [span.low for span in self._spans]

    def __contains__(self, topic: str) -> bool:
        return topic in self._exact or self._has_prefix_of(topic)

    def __bool__(self) -> bool:
        return bool(self._spans)

    @property
    def is_everything(self) -> bool:
        """True if every topic is in the set."""
        return self._prefixes == [""]

    def rows(self, names: Sequence[bytes], after: bytes = b"") -> Iterator[tuple[int, int]]:
        """Yield the slices of sorted names, those above `after`, that are in the set."""
        first = bisect_right(names, after) if after else 0
        begin = max(0, bisect_right(self._lows, after) - 1)
        for span in self._spans[begin:]:
            low = bisect_left(names, span.low, first)
            high = len(names) if span.high is None else bisect_left(names, span.high, low)
            if high > low:
                yield low, high

    def beginnings(self, requested: bytes) -> list[bytes]:
        """Return the prefixes of exactly the announcements of these topics that begin with `requested`.

        None of them is a prefix of another one. See `quothwire.protocol.announcement`.
        """
        found = []
        for span in self._spans:
            if requested.startswith(span.beginning):
                return [requested]
            if span.beginning.startswith(requested):
                found.append(span.beginning)
        return found

    def _has_prefix_of(self, topic: str) -> bool:
        """Return True if a prefix matches. No prefix begins with another: only the last one below can."""
        row = bisect_right(self._prefixes, topic) - 1
        return row >= 0 and topic.startswith(self._prefixes[row])


def _span_of_prefix(prefix: bytes) -> _Span:
    """Return the names that begin with a prefix. UTF-8 has no byte 255, so the last one can be increased."""
    high = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    return _Span(prefix, high, prefix)


EVERYTHING = TopicScope([EVERY])
