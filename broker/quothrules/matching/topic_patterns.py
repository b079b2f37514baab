"""The topics that rules read: names and patterns, without those that are excluded."""

from __future__ import annotations

from collections.abc import Iterable

from quoth.merging.selection import Selection
from quothwire.errors import error
from quothwire.topic import check_topic

RULES_TOPIC = "quoth.rules"
OWN_TOPICS = "quoth."
"""Topics of the system begin so. Patterns do not match them, and rules do not write them."""
DEAD_LETTERS = ".dead"
"""Dead-letter topics end so. Only a pattern that ends so matches them, else a rule would read its own."""


class TopicPatterns:
    """Names and patterns as in a shell; a word that begins with ``!`` excludes topics.

    Raises `RequestError` ``bad_topic``, or ``bad_request`` if only exclusions are named.
    """

    def __init__(self, words: Iterable[str]) -> None:
        words = list(words)
        taken = [word for word in words if not word.startswith("!")]
        excluded = [word[1:] for word in words if word.startswith("!")]
        if not taken:
            raise error(
                "bad_request", "no topic is named", "give names of topics, or patterns like 'orders.*'"
            )
        self._words = words
        self._named = Selection(taken)
        self._dead = [Selection(word) for word in taken if word.endswith(DEAD_LETTERS)]
        self._excluded = Selection(excluded) if excluded else None

    def __str__(self) -> str:
        return ", ".join(self._words)

    def matches(self, topic: str) -> bool:
        """Return True for a topic that is read."""
        if self._excluded is not None and self._excluded.means(topic):
            return False
        if topic in self._named.names:
            return True
        if topic.startswith(OWN_TOPICS):
            return False
        if topic.endswith(DEAD_LETTERS):
            return any(pattern.matches(topic) for pattern in self._dead)
        return self._named.matches(topic)


def check_target(topic: str) -> str:
    """Return the name of a topic that a rule may write. Raises `RequestError` ``bad_topic``."""
    if check_topic(topic).startswith(OWN_TOPICS):
        raise error(
            "bad_topic", f"{topic!r} belongs to the system", f"no name that begins with {OWN_TOPICS!r}"
        )
    return topic
