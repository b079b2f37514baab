"""A member of a group as a command has it: patient with the broker, settling many records at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quoth.core.request_state import passes_soon
from quoth.groups.leased import settle_all
from quoth.groups.settlements import GIVEN_BACK_MS
from quothcli.cli.exit_status import say
from quothcli.groups.stopping import StoppedWaiting, StopRequest
from quothwire.errors import QuothError
from quothwire.protocol.group_settings import AT_MOST_ONCE
from quothwire.protocol.settlement import Settle

if TYPE_CHECKING:
    from quoth import ConsumerGroup, GroupMessage
    from quothwire.protocol.group_messages import GroupInfo

LOOK_S = 1.0
"""The longest wait for records: then a request to stop is noticed."""
AWAY_S = 0.5
"""Time between two attempts while no broker is there."""


class PatientMember:
    """A member of a group, for one thread that takes records and any that settle them.

    info: of the group, when it began. until_empty: wait neither for records nor for a broker. A settlement is
    not waited for: a later `take` reports its error, and the end of the member waits for all of them.
    """

    def __init__(
        self, group: ConsumerGroup, info: GroupInfo, stop: StopRequest, *, until_empty: bool
    ) -> None:
        self.lease = 0.0 if info.settings["mode"] == AT_MOST_ONCE else float(info.settings["lease"])
        """Seconds; 0 in a group without leases."""
        self.may_hold_several = self.lease > 0 and info.settings["max_attempts"] != 1
        """False if records that are fetched and not begun with are lost, or dead letters, if this dies."""
        self.is_empty = False
        """True if the broker had nothing to hand out, the last time."""
        self._group = group
        self._stop = stop
        self._until_empty = until_empty
        self._reported = ""

    def take(self, count: int) -> list[GroupMessage]:
        """Return up to so many records; none if none come in a moment.

        Raises an error that does not pass by itself.
        """
        self.is_empty = False
        try:
            with self._stop.waiting():
                found = self._group.fetch(count, 0.0 if self._until_empty else LOOK_S)
        except StoppedWaiting:
            return []
        except QuothError as problem:
            self._pass(problem)
            if problem.code != "lease_lost":
                time.sleep(AWAY_S)
            return []
        self.is_empty, self._reported = not found, ""
        return found

    def ack(self, records: Sequence[GroupMessage]) -> None:
        """Finish records."""
        settle_all(records, Settle.ACK)

    def give_back(self, records: Sequence[GroupMessage], reason: str, *, at_once: bool = False) -> None:
        """Let records be handed out again, after the group's backoff or at once."""
        settle_all(records, Settle.NACK, GIVEN_BACK_MS if at_once else 0, reason)

    def release(self, records: Sequence[GroupMessage]) -> None:
        """Let records with which no work has begun be handed out again at once."""
        settle_all(records, Settle.RELEASE)

    def reject(self, records: Sequence[GroupMessage], reason: str) -> None:
        """Make dead letters of records."""
        settle_all(records, Settle.TERM, reason=reason)

    # -- inside -----------------------------------------------------------------------------------------

    def _pass(self, problem: QuothError) -> None:
        """Report an error that passes by itself, the same thing once. Raises any other one."""
        if problem.code != "lease_lost" and (self._until_empty or not passes_soon(problem)):
            raise problem
        if problem.code != self._reported:
            self._reported = problem.code
            say(f"quoth: {problem.code}: {problem.text}; what was not acknowledged comes again")
