"""The names of transactions, and the list of parts that a transaction consists of.

An application and a version name a transaction on a topic. Any client may stage a part, and each try to write
it is an attempt of its own. The request that publishes them names one attempt of each part, in the order of
their records.

    parts, the payload of publish_staged, 32 bytes each, little-endian
    0   part       8
    8   attempt    8
    16  batches    8
    24  records    8
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from quothwire.batch import Bytes
from quothwire.errors import error
from quothwire.topic import check_size

APPLICATION_BYTES_MAX = 200
"""As many as a topic's name has."""
VERSION_MAX = 2**62
PART_MAX = 999_999
"""Six digits in a file's name. A Spark job has fewer than a million partitions."""
BATCHES_MAX = 16_384
"""Batches of one transaction, 16 GiB if each has a MiB. Publishing writes a header for each."""
ONCE = "~"
"""The first character of an application name that is used for one transaction only, for example a random one.
The broker forgets such a name before any other."""
NEVER = -1
"""The newest version of an application that has published none."""
ANY = -2
"""Matches any newest version."""

_ONCE_BITS = 0xFFFF
_PART = struct.Struct("<QQQQ")


class StagedPart(NamedTuple):
    """One part of a transaction, as one attempt has staged it. Can be pickled."""

    part: int
    attempt: int
    batches: int
    records: int


def check_application(name: str) -> str:
    """Return an application's name, or raise `RequestError` ``bad_request``."""
    check_size(name, "application's", APPLICATION_BYTES_MAX, "bad_request", "nothing was done")
    return name


def producer_of(application: str) -> int:
    """Return the producer id of an application's batches: the xxh3-64 of its name.

    Its lowest 16 bits are 0 if the name begins with `ONCE`, and never otherwise.
    """
    return producer_from(xxh3_64_intdigest(application.encode()), application.startswith(ONCE))


def producer_from(digest: int, is_used_once: bool) -> int:
    """Return the producer id of a name with this hash. It is never 0."""
    if is_used_once:
        return digest & ~_ONCE_BITS or _ONCE_BITS + 1
    return digest if digest & _ONCE_BITS else digest | 1


def is_once(producer: int) -> bool:
    """True for the producer id of a name that begins with `ONCE`."""
    return not producer & _ONCE_BITS


def sequence_of(version: int) -> int:
    """Return the sequence of all batches of a version, which is never 0: that means none."""
    return version + 1


def encode_parts(parts: Iterable[StagedPart]) -> bytes:
    """Encode the parts to publish, in their order. Raises `RequestError` as `decode_parts` does."""
    found = list(parts)
    try:
        encoded = b"".join(_PART.pack(*part) for part in found)
    except (struct.error, TypeError):
        raise error("bad_request", "a part is four whole numbers: part, attempt, batches, records") from None
    _check_parts(found)
    return encoded


def decode_parts(payload: Bytes, count: int) -> list[StagedPart]:
    """Decode the `count` parts to publish.

    Raises `RequestError`: ``bad_request`` for another number of them, and for a part that occurs twice or has
    no batch or no record; ``too_large`` above `BATCHES_MAX` or `PART_MAX`.
    """
    if len(payload) != _PART.size * count:
        text = f"the payload has {len(payload)} bytes, {count} parts have {_PART.size * count}"
        raise error("bad_request", text, "nothing was done; parts tells how many the payload names")
    parts = list(map(StagedPart._make, _PART.iter_unpack(payload)))
    _check_parts(parts)
    return parts


def _check_parts(parts: list[StagedPart]) -> None:
    if (batches := sum(part.batches for part in parts)) > BATCHES_MAX:
        hint = "nothing was published, the parts are staged: publish them in two versions"
        raise error("too_large", f"a transaction of {batches} batches, at most {BATCHES_MAX}", hint)
    seen: set[int] = set()
    for part in parts:
        if part.part > PART_MAX:
            text = f"part is {part.part}: it must be from 0 to {PART_MAX}"
            raise error("too_large", text, "nothing was done")
        if not 1 <= part.batches <= part.records:
            text = f"part {part.part} has {part.batches} batches and {part.records} records"
            raise error("bad_request", text, "a part has a batch at least, and a batch a record")
        if part.part in seen:
            text = f"part {part.part} stands there twice"
            raise error("bad_request", text, "name one attempt of each part")
        seen.add(part.part)
