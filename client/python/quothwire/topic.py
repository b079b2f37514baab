"""Names of topics, on the wire and in every API."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from quothwire.errors import error

TOPIC_BYTES_MAX = 200
"""A file name of 255 bytes has room for it, percent-encoded or cut, and for a log id."""

_FORBIDDEN_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))


def check_size(name: str, whose: str, bytes_max: int, code: str, hint: str | None = None) -> None:
    """Raise `RequestError` with this code for a name that has not 1 to `bytes_max` bytes of UTF-8."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise error(code, f"the {whose} name is not UTF-8") from None
    if not 1 <= size <= bytes_max:
        raise error(code, f"the {whose} name has {size} bytes: it must be 1 to {bytes_max} of UTF-8", hint)


def check_topic(name: str) -> str:
    """Return the name, or raise `RequestError` with code ``bad_topic``."""
    if not isinstance(name, str):
        raise error("bad_topic", f"the name of a topic is text, not {name!r:.100}")
    check_size(name, "topic's", TOPIC_BYTES_MAX, "bad_topic")
    if name in (".", "..") or "/" in name:
        raise error("bad_topic", f"{name!r} is not a topic's name")
    if not name.isprintable() and any(_is_forbidden(character) for character in name):
        raise error("bad_topic", f"{name!r} holds a control character")
    return name


def _is_forbidden(character: str) -> bool:
    return unicodedata.category(character) in _FORBIDDEN_CATEGORIES


def decode_topic(frame: bytes) -> str:
    """Read a topic's name from a frame, or raise `RequestError` with code ``bad_topic``."""
    if len(frame) > TOPIC_BYTES_MAX:
        text = f"the topic's name has {len(frame)} bytes: it must be 1 to {TOPIC_BYTES_MAX} of UTF-8"
        raise error("bad_topic", text)
    return _decoded(frame)


@lru_cache(maxsize=1_000)
def _decoded(frame: bytes) -> str:
    try:
        return check_topic(frame.decode())
    except UnicodeDecodeError:
        raise error("bad_topic", "the topic's name is not UTF-8") from None
