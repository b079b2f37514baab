"""A broker's address: whether it is this machine, and which port it means."""

from __future__ import annotations

from urllib.parse import urlsplit

_ANY_HOST = frozenset(("0.0.0.0", "::", "*"))


def is_here(url: str) -> bool:
    """Can only this machine be meant?"""
    place = urlsplit(url)
    host = place.hostname or ""
    return place.scheme == "ipc" or host in ("localhost", "::1") or host.startswith("127.")


def host_and_port(url: str) -> tuple[str, int]:
    """Where a tcp address leads. Raises ValueError for what is none."""
    place = urlsplit(url)
    host = place.hostname or ""
    return "127.0.0.1" if host in _ANY_HOST else host, place.port or 0
