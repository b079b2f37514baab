"""One attempt to stage a part of a transaction: its batches in flight. Uses no socket.

The broker takes the batches of an attempt by their numbers and without a hole. So when one is refused for
now, those behind it are refused, too, and are sent again once the first of them is staged:

    ready --sent--> in flight --staged--> done
      ^                 |
      +--out of order---+

If a batch is out of order although all before it were staged, those are lost: the transaction was aborted or
has expired, or the broker lost its power. Then, as after every lasting error, the attempt has failed. Another
attempt begins with the part's first record. Batches staged by a failed one are removed when the transaction
is published or aborted.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from quoth.columns import RecordColumns, check_size
from quoth.core.options import deadline_in
from quoth.core.outgoing import BATCH_BYTES, OVERHEAD_BYTES
from quoth.core.request_state import RETRIED, RequestState
from quothwire import batch as wire
from quothwire.batch import Flag
from quothwire.columns import Column, encode_columns
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Stage
from quothwire.protocol.transaction import (
    PART_MAX,
    VERSION_MAX,
    StagedPart,
    check_application,
    producer_of,
    sequence_of,
)
from quothwire.record import RECORD_BYTES
from quothwire.topic import check_topic

IN_FLIGHT_MAX = 8
"""Batches in flight: the broker writes one while the next ones are sent."""
IN_FLIGHT_BYTES = 16 * 2**20
"""Bytes of those; a single batch may be as large."""
_PASSING = RETRIED | {"disk_low"}
_SAYS_ALL = frozenset(("already_published", "closed"))
_KEPT = (
    "nothing of the part is published; what is staged of it goes when its transaction is published or aborted"
)


@dataclass(frozen=True, slots=True)
class TransactionName:
    """The name of a transaction, a plain value by which any client may stage, publish and abort."""

    topic: str
    application: str
    version: int

    def checked(self) -> TransactionName:
        """Return the name. Raises `RequestError` ``bad_topic`` or ``bad_request`` if it is wrong."""
        check_topic(self.topic)
        if not isinstance(self.application, str):
            raise error("bad_request", f"an application's name is text, not {self.application!r:.100}")
        check_application(self.application)
        _check_whole(self.version, VERSION_MAX, "a version")
        return self

    def __str__(self) -> str:
        return f"version {self.version} of {self.application!r} on topic {self.topic!r}"


@dataclass(eq=False, slots=True)
class _Sent:
    """A batch of the attempt.

    request: set while it is in flight. leads: all batches before it were staged when it was sent. refused: it
    was out of order, and is to be sent again.
    """

    number: int
    payload: bytes
    request: RequestState | None = None
    leads: bool = False
    refused: bool = False


@dataclass(eq=False, slots=True)
class _Filling:
    """The records of a batch that is being filled.

    keys, headers: may be shorter than values; the records behind their end have none. size: bytes in all.
    """

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    size: int = 0

    def extend(self, columns: RecordColumns, size: int) -> None:
        """Add several records. size: their bytes in the batch."""
        values, keys, headers = columns
        before = len(self.values)
        self.values += values
        if keys is not None:
            self.keys += [None] * (before - len(self.keys))
            self.keys += keys
        if headers is not None:
            self.headers += [b""] * (before - len(self.headers))
            self.headers += headers
        self.size += size

    def encoded(self, producer: int, sequence: int, flags: int) -> bytes:
        """Return the batch as bytes. flags: see `quothwire.batch.Flag`."""
        count = len(self.values)
        keys = self.keys and self.keys + [None] * (count - len(self.keys))
        headers = self.headers and self.headers + [b""] * (count - len(self.headers))
        return wire.encode(
            self.values, keys or None, headers or None, producer=producer, sequence=sequence, flags=flags
        )


class PartStaging:
    """One attempt to stage one part. Owned by one thread.

    The driver sends the requests of `leaving`, gives every answer to `take`, and waits unless it `has_room`.
    """

    def __init__(self, name: TransactionName, part: int, payload_bytes_max: int, timeout: float) -> None:
        """timeout: seconds for which each batch may be in flight. Raises `RequestError` ``bad_request``."""
        _check_whole(part, PART_MAX, "a part")
        deadline_in(timeout)
        self._name = name
        self._part = part
        self._attempt = secrets.randbits(64)
        self._timeout = timeout
        self._payload_bytes_max = payload_bytes_max
        self._identity = {
            "producer": producer_of(name.application),
            "sequence": sequence_of(name.version),
            "flags": int(Flag.TRANSACTION),
        }
        self._filling = _Filling()
        self._unsettled: deque[_Sent] = deque()
        self._bytes = 0
        """Of those."""
        self._batches = self._records = 0
        self._problem: QuothError | None = None

    # -- records ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error that ended the attempt, if there is one."""
        if self._problem is not None:
            raise self._problem

    def sizes_of(self, columns: RecordColumns) -> list[int]:
        """Return the bytes of each record in a batch. Raises ``too_large`` for a record above all limits."""
        values, keys, headers = columns
        sizes = [RECORD_BYTES + len(value) for value in values]
        if keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        if headers is not None:
            sizes = [size + len(encoded) for size, encoded in zip(sizes, headers, strict=True)]
        if sizes and max(sizes) > self._payload_bytes_max - OVERHEAD_BYTES:
            raise error("too_large", f"a record of {max(sizes)} bytes", "no record of this call was taken")
        return sizes

    def put(self, columns: RecordColumns, sizes: list[int]) -> Iterator[None]:
        """Add records; yields at each full batch, which is to be sent before more is added."""
        values, keys, headers = columns
        batch_bytes = min(BATCH_BYTES, self._payload_bytes_max - OVERHEAD_BYTES)
        ends = list(accumulate(sizes, initial=0))
        begin = 0
        while begin < len(values):
            filling = self._filling
            end = bisect_right(ends, ends[begin] + batch_bytes - filling.size, begin + 1) - 1
            if not filling.values:
                end = max(end, begin + 1)
            rows = slice(begin, end)
            part = RecordColumns(values[rows], keys and keys[rows], headers and headers[rows])
            filling.extend(part, ends[end] - ends[begin])
            begin = end
            if begin < len(values):
                self.seal()
                yield

    def put_columns(self, values: Column, keys: Column | None, headers: Column | None) -> None:
        """Add a batch of its own behind the records so far. Raises as `encode_columns` does."""
        payload = encode_columns(values, keys, headers, **self._identity)
        check_size(payload, self._payload_bytes_max, "nothing of it was taken")
        self.seal()
        self._add(payload, len(values.offsets) // 4 - 1)

    def seal(self) -> None:
        """Close the batch that is being filled."""
        filling, self._filling = self._filling, _Filling()
        if filling.values:
            self._add(filling.encoded(**self._identity), len(filling.values))

    # -- requests and answers ---------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """True if another batch may be in flight."""
        return len(self._unsettled) < IN_FLIGHT_MAX and self._bytes < IN_FLIGHT_BYTES

    @property
    def is_settled(self) -> bool:
        """True if all batches are staged."""
        return not self._unsettled

    def leaving(self) -> Iterator[RequestState]:
        """Iterate over the requests to send now, in order."""
        if self._unsettled and self._unsettled[0].request and any(one.refused for one in self._unsettled):
            return  # until the first one is staged, they would be refused again
        key = self._name.application, self._name.version
        for one in self._unsettled:
            if one.request is None:
                one.request = RequestState(
                    Stage(*key, self._part, self._attempt, one.number),
                    self._name.topic,
                    one.payload,
                    deadline=deadline_in(self._timeout),
                    retried=_PASSING,
                )
                one.leads, one.refused = one is self._unsettled[0], False
                yield one.request

    def take(self, request: RequestState, answer: Answer) -> None:
        """Process an answer. Raises the error that ends the attempt."""
        one = next((one for one in self._unsettled if one.request is request), None)
        if one is None:
            return
        problem = answer.reply
        if not isinstance(problem, QuothError):
            self._unsettled.remove(one)
            self._bytes -= len(one.payload)
        elif problem.code != "out_of_sequence":
            raise self.fail(problem)
        elif one.leads:
            text = f"{one.number} batches that were staged are gone"
            raise self.fail(error("not_staged", text, "aborted, expired, or lost with the broker's power"))
        else:
            one.request, one.refused = None, True

    def fail(self, problem: QuothError) -> QuothError:
        """Fail the attempt; returns the error that names the part."""
        if self._problem is None:
            kept = "" if problem.code in _SAYS_ALL else _KEPT
            hint = "; ".join(filter(None, (problem.hint, kept)))
            self._problem = error(problem.code, f"part {self._part} of {self._name}: {problem.text}", hint)
        return self._problem

    def end(self) -> StagedPart:
        """Return the part, all of which is staged, and take nothing more."""
        self._problem = error("closed", f"part {self._part} of {self._name} is finished")
        return StagedPart(self._part, self._attempt, self._batches, self._records)

    # -- inside -----------------------------------------------------------------------------------------

    def _add(self, payload: bytes, records: int) -> None:
        self._unsettled.append(_Sent(self._batches, payload))
        self._bytes += len(payload)
        self._batches += 1
        self._records += records


def _check_whole(number: object, most: int, what: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise error("bad_request", f"{what} is a whole number from 0 to {most}, not {number!r:.100}")
