"""Announcements: one frame on the PUB socket, a hint that a topic has new records.

    TOPIC 00 POINTER          the topic's UTF-8 name, a zero byte, its newest pointer as a decimal

A subscription to TOPIC and the zero byte gets exactly this topic. The broker joins announcements and may drop
them. Readers fetch records, so that no read depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quothwire.errors import error
from quothwire.pointer import check_pointer
from quothwire.topic import decode_topic

if TYPE_CHECKING:
    from quothwire.protocol.messages import Welcome

SUFFIX = "-announcements"
"""The end of the address of announcements where the broker's is not tcp."""
_SEPARATOR = b"\0"


def encode(topic: str, newest: int) -> bytes:
    """Encode an announcement."""
    return topic.encode() + _SEPARATOR + b"%d" % newest


def decode(frame: bytes) -> tuple[str, int]:
    """Read an announcement as (topic, newest pointer).

    Raises `RequestError`: ``bad_request``, ``bad_topic`` or ``bad_pointer``.
    """
    name, separator, digits = frame.partition(_SEPARATOR)
    if not separator or not digits.isdigit() or len(digits) > 17:
        raise error("bad_request", "this is no announcement")
    return decode_topic(name), check_pointer(int(digits))


def endpoint(url: str, welcome: Welcome) -> str:
    """Return the URL to subscribe to for a client that connects to `url`. welcome: the reply to hello."""
    if not url.startswith("tcp://"):
        return url + SUFFIX
    if welcome.announcements:
        return welcome.announcements
    host, _, port = url.rpartition(":")
    return f"{host}:{welcome.announcements_port or int(port) + 1}"


def subscription(topic: str) -> bytes:
    """Return the prefix to subscribe to for the announcements of one topic."""
    return topic.encode() + _SEPARATOR
