"""Records who did what: what changes or removes something, what was denied, refused handshakes, reloads.

A record never has anything of the content of records. Of one client and event, a hundred records are kept in
ten seconds, then the number of the others: a client that is denied a thousand times a second must not fill
the disk.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from quothd.requests.pending_request import PendingRequest, Responder
from quothwire import batch, pointer
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import Operation, Reply

RECORDS_MAX = 100
WINDOW_S = 10.0
OK = "ok"
HANDSHAKE = "handshake"
"""The event of a connection that was refused."""
RELOAD = "reload"
LEFT_OUT = "left_out"
"""The outcome of a record that stands for others."""

CHANGING = frozenset(
    (
        Operation.CREATE,
        Operation.UPDATE,
        Operation.DELETE,
        Operation.TRIM,
        Operation.ROLL,
        Operation.UPDATE_GROUP,
        Operation.SEEK_GROUP,
        Operation.DELETE_GROUP,
    )
)
"""The operations that are recorded whatever their outcome is. The others are if they are denied."""
_DENIED_LATE = frozenset((Operation.OPEN_GROUP, Operation.GROUP_FETCH))
"""The operations that the topic may deny, which alone knows whether they create a group."""


class AuditRecord(NamedTuple):
    """One event. time: in microseconds since 1970, UTC.

    outcome: ``ok``, or the code of the error. key: the public key. address: that of the connection. left_out:
    records of this client and event that were not written before.
    """

    time: int
    event: str
    outcome: str
    client: str = ""
    key: str = ""
    address: str = ""
    topic: str = ""
    detail: str = ""
    left_out: int = 0

    def line(self) -> str:
        """Return the record as a line of JSON, without what is empty."""
        about = {name: value for name, value in self._asdict().items() if value}
        return json.dumps({**about, "time": pointer.to_text(self.time)}) + "\n"


class AuditTrail:
    """Makes the records. Any thread. write: takes a record, and never blocks. now: the time."""

    def __init__(self, write: Callable[[AuditRecord], None], now: Callable[[], int]) -> None:
        self._write = write
        self._now = now

    def note(self, event: str, outcome: str, **about: Any) -> None:
        """Record an event. about: fields of `AuditRecord`."""
        self._write(AuditRecord(self._now(), event, outcome, **about))

    def watch(self, request: PendingRequest, **about: str) -> None:
        """Record the outcome of a request once it has one, if it is to be recorded."""
        operation = request.operation
        if operation in CHANGING or operation in _DENIED_LATE:
            is_changing = operation in CHANGING

            def note(outcome: str) -> None:
                if is_changing or outcome == "denied":
                    self.note(operation.name.lower(), outcome, topic=request.topic, **about)

            request.responder = AuditedResponder(request.responder, note)

    def deny(self, request: PendingRequest, problem: QuothError, **about: str) -> None:
        """Record a request that is denied, unless it is watched."""
        if request.operation not in CHANGING and request.operation not in _DENIED_LATE:
            self.note(request.operation.name.lower(), problem.code, topic=request.topic, **about)


class AuditedResponder:
    """Answers as another responder does, and notes the outcome. See `Responder`."""

    __slots__ = ("_note", "_responder")

    def __init__(self, responder: Responder, note: Callable[[str], None]) -> None:
        self._responder = responder
        self._note = note

    @property
    def sees_records_alone(self) -> bool:
        """See `Responder`."""
        return self._responder.sees_records_alone

    @property
    def opens_groups(self) -> bool:
        """See `Responder`."""
        return self._responder.opens_groups

    def request(self) -> Any:
        """Decode the request."""
        return self._responder.request()

    def payload(self) -> batch.Bytes:
        """Return what came with it."""
        return self._responder.payload()

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """Return the frames of a reply."""
        self._note(OK)
        return self._responder.reply(reply, payload)

    def refuse(self, problem: QuothError) -> Frames:
        """Return the frames of an error."""
        self._note(problem.code)
        return self._responder.refuse(problem)


class AuditThrottle:
    """Leaves out records of a client and event that come too often, and counts them."""

    def __init__(self) -> None:
        self._window_end = 0.0
        self._leaves_out = False
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, record: AuditRecord, now: float) -> list[AuditRecord]:
        """Return the records to write: none if this one is left out.

        now: by a monotonic clock.
        """
        written = self.end_window(now, record.time) if now >= self._window_end else []
        self._counts[record.client, record.event] += 1
        if self._counts[record.client, record.event] <= RECORDS_MAX:
            written.append(record)
        else:
            self._leaves_out = True
        return written

    def due(self) -> float | None:
        """Return the time of the next call of `end_window`; None if nothing was left out."""
        return self._window_end if self._leaves_out else None

    def end_window(self, now: float, time: int) -> list[AuditRecord]:
        """Begin another window; returns the numbers of the records that were left out."""
        counts, self._counts = self._counts, Counter()
        self._window_end = now + WINDOW_S
        self._leaves_out = False
        return [
            AuditRecord(time, event, LEFT_OUT, client, left_out=count - RECORDS_MAX)
            for (client, event), count in counts.items()
            if count > RECORDS_MAX
        ]
