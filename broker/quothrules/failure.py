"""The failure of a rule: what a record's dead letter gives as the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RuleFailure(Exception):
    """A rule cannot be applied to a record. rule: its name, empty if the failure belongs to no single one."""

    def __init__(self, reason: str, rule: str = "") -> None:
        super().__init__(reason, rule)
        self.reason = reason
        self.rule = rule

    def __str__(self) -> str:
        return f"rule {self.rule!r}: {self.reason}" if self.rule else self.reason


@contextmanager
def failures_of(rule: str) -> Iterator[None]:
    """Give the failures inside the block the name of a rule. Any other exception becomes a failure."""
    try:
        yield
    except RuleFailure as failure:
        raise RuleFailure(failure.reason, failure.rule or rule) from failure.__cause__
    except Exception as problem:
        raise RuleFailure(f"{type(problem).__name__}: {problem}", rule) from problem
