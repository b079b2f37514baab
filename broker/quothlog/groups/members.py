"""Members of a consumer group, as its state shows them. Nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MEMBERS_MAX = 1_000


@dataclass(slots=True)
class Member:
    """A member. seen: the monotonic time of its last request. in_flight: its records under a lease."""

    seen: float
    in_flight: int = 0


class Members:
    """The members of one group, by name. Of too many, the oldest ones without leases are forgotten."""

    def __init__(self) -> None:
        self._by_name: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[tuple[str, Member]]:
        """Yield names and members, the one that was seen last first."""
        return iter(sorted(self._by_name.items(), key=lambda item: -item[1].seen))

    def see(self, name: str, now: float) -> None:
        """Take note of a request of a member."""
        if name in self._by_name:
            self._by_name[name].seen = now
            return
        if len(self) >= MEMBERS_MAX:
            idle = [name for name, one in self._by_name.items() if not one.in_flight]
            del self._by_name[min(idle or self._by_name, key=lambda name: self._by_name[name].seen)]
        self._by_name[name] = Member(now)

    def add(self, name: str, records: int) -> None:
        """Count records that a member has under a lease now; a negative number for those that it had."""
        member = self._by_name.get(name)
        if member is not None:
            member.in_flight += records

    def forget(self, before: float) -> None:
        """Forget the members without leases that were not seen since a monotonic time."""
        for name, member in [*self._by_name.items()]:
            if not member.in_flight and member.seen < before:
                del self._by_name[name]

    def end_leases(self) -> None:
        """Take all records from all members."""
        for member in self._by_name.values():
            member.in_flight = 0
