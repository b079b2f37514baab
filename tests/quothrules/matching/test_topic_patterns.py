"""The topics that rules read."""

from __future__ import annotations

import pytest

from quothrules.matching.topic_patterns import TopicPatterns, check_target
from quothwire.errors import QuothError


@pytest.mark.parametrize(
    ("words", "taken", "left"),
    [
        (["a"], ["a"], ["b", "aa"]),
        (["*"], ["a", "a.b", "deadly"], ["quoth.rules", "quoth.x", "a.dead", "a.rules.x.dead"]),
        (["*", "!a*"], ["b"], ["a", "ab"]),
        (["a", "!a"], [], ["a"]),
        (["*.dead"], ["a.dead"], ["a", "quoth.x.dead"]),
        (["a.dead"], ["a.dead"], ["b.dead"]),
        (["a.*", "b.*.dead"], ["a.x", "b.x.dead"], ["a.x.dead", "b.x"]),
        (["quoth.rules.stats"], ["quoth.rules.stats"], ["quoth.rules"]),
        (["[!a]?"], ["bc"], ["ab", "b"]),
    ],
)
def test_patterns(words: list[str], taken: list[str], left: list[str]) -> None:
    patterns = TopicPatterns(words)
    assert [name for name in taken + left if patterns.matches(name)] == taken


@pytest.mark.parametrize("words", [[], ["!a"], ["a/b"], ["!"], [""], ["!*", "a/b"]])
def test_wrong_patterns(words: list[str]) -> None:
    with pytest.raises(QuothError, match=r"bad_topic|bad_request"):
        TopicPatterns(words)


@pytest.mark.parametrize("name", ["", ".", "a/b", "x" * 201, "quoth.rules", "quoth.", "a\n"])
def test_a_topic_that_rules_cannot_write(name: str) -> None:
    with pytest.raises(QuothError, match="bad_topic"):
        check_target(name)
