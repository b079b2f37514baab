"""Formats the figures of pages: the same figure has the same form on each of them."""

from __future__ import annotations

from quothwire.pointer import time_text
from quothwire.text.quantity import format_size, format_span

NONE = "-"


def count(number: float | None) -> str:
    """Format a number of things: ``12,345``."""
    return NONE if number is None else f"{number:,.0f}"


def size(amount: float | None) -> str:
    """Format a size: ``67.1 MB``."""
    return NONE if amount is None else format_size(amount, rough=True)


def rate(number: float, unit: str = "/s") -> str:
    """Format a rate: ``1,234/s``, with a digit behind the point if it is small."""
    return f"{number:,.0f}{unit}" if number >= 10 or number == 0 else f"{number:,.1f}{unit}"


def span(seconds: float | None) -> str:
    """Format a span of time by its two largest units, in short: ``1d12h``."""
    if seconds is None:
        return NONE
    return format_span(round(seconds) if seconds >= 1 else round(seconds, 3), short=True, rough=True)


def age(pointer: int, now: int) -> str:
    """Format the age of a record, which its pointer is."""
    return span(max(0.0, (now - pointer) / 1e6)) if pointer else NONE


def time(pointer: int) -> str:
    """Format a time to the microsecond; none for 0."""
    return time_text(pointer) if pointer else NONE


def second(pointer: int) -> str:
    """Format a time to the second, ``2026-01-02 03:04:05``; none for 0."""
    return time_text(pointer)[:19].replace("T", " ") if pointer else NONE


def latency(seconds: float | None) -> str:
    """Format a duration of a request by three digits."""
    return NONE if seconds is None else format_span(round(seconds, 6), short=True, rough=True)
