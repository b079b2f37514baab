"""The source of a forwarding whose records have addresses, how far it has come, and its observer."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quoth.forward.outages import WaitEvents


class AddressedRun(NamedTuple):
    """Values that lie side by side in the source up to an address, or a gap, which has none.

    text: the finding about a gap, for people.
    """

    address: int
    next: int
    values: list[bytes]
    text: str = ""


class AddressedSource(Protocol):
    """The source. An error that is not retryable ends the forwarding.

    overhead: bytes between the address of a record and that of the next one, beside the value.
    """

    overhead: int

    def seek(self, address: int) -> None:
        """Continue at an address."""

    def wait(self, seconds: float) -> list[AddressedRun]:
        """Return what follows, nothing if there is nothing within so many seconds."""


class AddressProgress(NamedTuple):
    """The progress of such a forwarding.

    producer: the producer id of its batches, 0 before it has one. address: that of the source up to which
    everything is synced in the topic, or missing. target, target_log: the pointer of the newest forwarded
    record in the topic, and the id of the topic's log.
    """

    producer: int = 0
    address: int = 0
    target: int = 0
    target_log: int = 0


class AddressedEvents(WaitEvents, Protocol):
    """The observer of a forwarding."""

    def forwarded(self, records: int, size: int) -> None:
        """Report that more records are synced in the topic."""

    def missed(self, gap: AddressedRun) -> None:
        """Report a gap in the source. After a crash it may be reported again."""

    def began_anew(self, text: str) -> None:
        """Report an unexpected change, after which the forwarding continues."""
