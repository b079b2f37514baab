"""The number of records that an iteration asks for at once: as many as are handled in a moment.

What waits at a member is under a lease, and no other member has it. So an iteration begins with one record,
and asks for more only as long as it handles them quickly.
"""

from __future__ import annotations

from quothwire.protocol.group_settings import AT_MOST_ONCE

RECORDS_MAX = 1_000
GROWTH = 4
"""The most by which one lot is larger than the one before."""
LOT_S_MAX = 0.25
LEASE_PART = 0.1
"""The part of a lease in which all records of a lot are handled."""
IN_FLIGHT_PART = 2
"""A lot is at most this part of what all members may have."""


class LotSize:
    """The size of the next lot of an iteration.

    records: that size. is_quick: True if another lot may wait while one is handled.
    """

    def __init__(self, mode: str, lease: float, max_in_flight: int, max_attempts: int) -> None:
        # What waits here when a member ends has no other attempt in such groups.
        self._may_wait = not (mode == AT_MOST_ONCE or max_attempts == 1)
        self._fair = max(1, max_in_flight // IN_FLIGHT_PART)
        self._most = min(RECORDS_MAX, self._fair) if self._may_wait else 1
        self._longest = LEASE_PART * lease
        self.records = 1
        self.is_quick = False

    def handled(self, records: int, seconds: float) -> None:
        """Note that so many records took so many seconds."""
        if records < 1:
            return
        fitting = int(min(LOT_S_MAX, self._longest) * records / max(seconds, 1e-9))
        self.records = max(1, min(fitting, GROWTH * records, self._most))
        self.is_quick = self._may_wait and records <= self._fair and seconds <= self._longest
