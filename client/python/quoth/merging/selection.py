"""A selection of topics by names, and by patterns as in a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from quothwire.errors import error
from quothwire.topic import check_topic

_SPECIAL = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    """Return True for a pattern. A name with a special character is written in brackets: ``[*]``."""
    return _SPECIAL.search(text) is not None


class Selection:
    """Names, also of topics that do not exist yet, and patterns: ``*``, ``?``, ``[abc]``, ``[!abc]``.

    Raises `RequestError` ``bad_topic``, or ``bad_request`` if nothing is selected.
    """

    def __init__(self, topics: str | Iterable[str]) -> None:
        words = [topics] if isinstance(topics, str) else list(topics)
        if not words:
            raise error(
                "bad_request", "no topic is named", "give names of topics, or patterns like 'orders.*'"
            )
        self._words = words
        self.names = [check_topic(word) for word in dict.fromkeys(words) if not is_pattern(word)]
        self._patterns = [re.compile(translate(check_topic(word))) for word in words if is_pattern(word)]

    def __str__(self) -> str:
        return " or ".join(map(repr, self._words))

    @property
    def has_patterns(self) -> bool:
        """True if topics that are created later may belong to it."""
        return bool(self._patterns)

    def means(self, name: str) -> bool:
        """Return True for a topic that is selected by its name or by a pattern."""
        return name in self.names or self.matches(name)

    def matches(self, name: str) -> bool:
        """Return True for a topic that is selected by a pattern."""
        return any(pattern.match(name) for pattern in self._patterns)
