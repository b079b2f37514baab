"""`quoth doctor`: is this machine, this directory and this broker as they should be.

A check returns a finding, or yields several; it changes nothing, wakes nothing and leaves nothing behind.
Only the probe makes something, a topic of its own, and removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Verdict = Literal["ok", "warn", "fail"]
"""A verdict. warn: it works, but not as well or as safely as it should. fail: it does not work."""


class Finding(NamedTuple):
    """One line of the report. advice: empty if there is nothing to do."""

    check: str
    verdict: Verdict
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def ok(check: str, text: str) -> Finding:
    """Make a finding without a problem."""
    return Finding(check, "ok", text)


def warn(check: str, text: str, advice: str) -> Finding:
    """Make a finding that should be improved."""
    return Finding(check, "warn", text, advice)


def fail(check: str, text: str, advice: str) -> Finding:
    """Make a finding of a failure."""
    return Finding(check, "fail", text, advice)
