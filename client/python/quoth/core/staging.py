"""Staging one part of a transaction: its batches on their way, one attempt. Touches no socket and no clock.

The broker takes the batches of an attempt without a hole only, under their numbers. So when one is refused
for now, those behind it are refused with it, and are asked again once the first of them is staged:

    ready --asked--> on its way --staged--> gone from here
      ^                 |
      +--out of order---+

What is out of order although all before it was staged has lost those: they were aborted, have expired, or
went with the power. Then, and with every other refusal that does not pass, the attempt has failed. Another
one begins with the part's first record; what this one has staged goes when its transaction is published or
aborted.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from quoth.columns import RecordColumns
from quoth.core.deadline import deadline_in
from quoth.core.outgoing import RECORD_BYTES, ProducerBatch
from quoth.core.request_state import RETRIED, RequestState
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
from quothwire.topic import check_topic

IN_FLIGHT_MAX = 8
"""Batches on their way: the broker writes one while the next ones travel."""
IN_FLIGHT_BYTES = 16 * 2**20
"""Bytes of those; a single batch may be as large."""
BATCH_BYTES = 2**20
"""A batch leaves when it holds this much."""
OVERHEAD_BYTES = 128
"""What a batch takes beside its records."""
_PASSING = RETRIED | {"disk_low"}
_SAYS_ALL = frozenset(("already_published", "closed"))
_KEPT = (
    "nothing of the part is published; what is staged of it goes when its transaction is published or aborted"
)


@dataclass(frozen=True, slots=True)
class TransactionName:
    """What a transaction is known by. A plain value: whoever has it may stage, publish and abort."""

    topic: str
    application: str
    version: int

    def checked(self) -> TransactionName:
        """The same. Raises `RequestError` ``bad_topic`` or ``bad_request`` for what names no transaction."""
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

    exchange: how it was asked, None before. leads: everything before it was staged then. refused: it was out
    of order, and is to be asked again.
    """

    number: int
    payload: bytes
    exchange: RequestState | None = None
    leads: bool = False
    refused: bool = False


class PartStaging:
    """One attempt at one part. Belongs to whoever drives it.

    He asks what `leaving` gives, hands every answer to `take`, and stops for a while unless it `has_room`.
    """

    def __init__(self, name: TransactionName, part: int, payload_bytes_max: int, timeout: float) -> None:
        """timeout: seconds for which each batch may be on its way. Raises `RequestError` ``bad_request``."""
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
        self._filling = ProducerBatch(0)
        self._unsettled: deque[_Sent] = deque()
        self._bytes = 0
        """Of those."""
        self._batches = self._records = 0
        self._problem: QuothError | None = None

    # -- what is put in ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise why nothing can be staged any more, if so."""
        if self._problem is not None:
            raise self._problem

    def sizes_of(self, columns: RecordColumns) -> list[int]:
        """What each record takes in a batch. Raises ``too_large`` for one that fits into none."""
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
        """Take records in; stops at each batch that is to be asked before more is taken."""
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
            filling.extend(
                values[rows], keys and keys[rows], headers and headers[rows], ends[end] - ends[begin]
            )
            begin = end
            if begin < len(values):
                self.seal()
                yield

    def put_columns(self, values: Column, keys: Column | None, headers: Column | None) -> None:
        """Take in a batch of its own, behind what was put in before. Raises as `encode_columns` does."""
        payload = encode_columns(values, keys, headers, **self._identity)
        self._check_size(payload)
        self.seal()
        self._add(payload, len(values.offsets) // 4 - 1)

    def seal(self) -> None:
        """Let the batch leave that is being filled."""
        filling, self._filling = self._filling, ProducerBatch(0)
        if filling.values:
            self._add(filling.encoded(**self._identity), len(filling.values))

    # -- what is asked and answered ---------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """May another batch be on its way?"""
        return len(self._unsettled) < IN_FLIGHT_MAX and self._bytes < IN_FLIGHT_BYTES

    @property
    def is_settled(self) -> bool:
        """Is everything staged that has left?"""
        return not self._unsettled

    def leaving(self) -> Iterator[RequestState]:
        """What is to be asked now, in this order."""
        if self._unsettled and self._unsettled[0].exchange and any(one.refused for one in self._unsettled):
            return  # until the first one is staged, they would be refused again
        for one in self._unsettled:
            if one.exchange is None:
                one.exchange = RequestState(
                    self._request(one.number),
                    self._name.topic,
                    one.payload,
                    deadline=deadline_in(self._timeout),
                    retried=_PASSING,
                )
                one.leads, one.refused = one is self._unsettled[0], False
                yield one.exchange

    def take(self, exchange: RequestState, answer: Answer) -> None:
        """Take in what the broker says. Raises why the attempt has failed, if it has."""
        one = next((one for one in self._unsettled if one.exchange is exchange), None)
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
            one.exchange, one.refused = None, True

    def fail(self, problem: QuothError) -> QuothError:
        """The attempt has failed; returns the error that tells so."""
        if self._problem is None:
            kept = "" if problem.code in _SAYS_ALL else _KEPT
            hint = "; ".join(filter(None, (problem.hint, kept)))
            self._problem = error(problem.code, f"part {self._part} of {self._name}: {problem.text}", hint)
        return self._problem

    def end(self) -> StagedPart:
        """The part, all of which is staged; nothing can be put in any more."""
        self._problem = error("closed", f"part {self._part} of {self._name} is finished")
        return StagedPart(self._part, self._attempt, self._batches, self._records)

    # -- inside -----------------------------------------------------------------------------------------

    def _add(self, payload: bytes, records: int) -> None:
        self._unsettled.append(_Sent(self._batches, payload))
        self._bytes += len(payload)
        self._batches += 1
        self._records += records

    def _check_size(self, payload: bytes) -> None:
        if len(payload) > self._payload_bytes_max:
            text = f"a batch of {len(payload)} bytes, the broker takes {self._payload_bytes_max}"
            raise error("too_large", text, "nothing of it was taken")

    def _request(self, number: int) -> Stage:
        name = self._name
        return Stage(name.application, name.version, self._part, self._attempt, number)


def _check_whole(number: object, most: int, what: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise error("bad_request", f"{what} is a whole number from 0 to {most}, not {number!r:.100}")
