"""What a check found: whether it is well, what it is, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """ok, or warn: it works, but not as well or as safely as it should, or fail: it does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of the report. advice: what to do, empty if nothing."""

    check: str
    verdict: Verdict
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def ok(check: str, text: str) -> Finding:
    """It is well."""
    return Finding(check, Verdict.OK, text)


def warn(check: str, text: str, advice: str) -> Finding:
    """It could be better."""
    return Finding(check, Verdict.WARN, text, advice)


def fail(check: str, text: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check, Verdict.FAIL, text, advice)
