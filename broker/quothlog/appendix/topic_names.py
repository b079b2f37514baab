"""Names for Poe's topics, which are any bytes that a directory can have as its name.

A name that is one of ours stays. Any other one, and each that begins with ``poe:``, becomes ``poe:`` and the
bytes of the name percent-encoded; so two topics never get one name, and `bytes_of_name` reverses it. Only a
name that would be longer than a topic's may be is cut, and ends with ``~`` and a hash of all its bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from urllib.parse import quote_from_bytes, unquote_to_bytes

from quothwire.errors import RequestError
from quothwire.topic import TOPIC_BYTES_MAX, check_topic

PREFIX = "poe:"
_HASH_BYTES = 16
_CUT = TOPIC_BYTES_MAX - len(PREFIX) - 1 - 2 * _HASH_BYTES


def topic_name(raw: bytes) -> str:
    """Return the name here of a topic with these bytes as its name there."""
    try:
        name = check_topic(raw.decode())
        if not name.startswith(PREFIX):
            return name
    except (UnicodeDecodeError, RequestError):
        pass
    quoted = quote_from_bytes(raw, safe="")
    if len(PREFIX) + len(quoted) > TOPIC_BYTES_MAX:
        quoted = f"{quoted[:_CUT]}~{blake2b(raw, digest_size=_HASH_BYTES).hexdigest()}"
    return PREFIX + quoted


def bytes_of_name(name: str) -> bytes:
    """Return the bytes from which `topic_name` has made a name, unless it was cut."""
    return unquote_to_bytes(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else name.encode()
