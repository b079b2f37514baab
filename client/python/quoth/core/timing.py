"""The pauses of a client, which all of its parts share."""

from __future__ import annotations

from dataclasses import dataclass

RESEND_S = 5.0


@dataclass(slots=True)
class Timing:
    """The seconds for which the parts of one client wait. A change has effect from the next wait on."""

    resend: float = RESEND_S
    """Until a request without an answer is sent again although the connection looks healthy."""
    tail_wait: float = 30.0
    """For which the broker holds the fetch of a tail; then the tail sends another one."""
    away_pause: float = 0.5
    """Between two attempts of a tail while no broker is there, or it refuses for now."""
    list_pause: float = 1.0
    """Between two lists of topics, in which new ones may match a pattern."""
    save_pause: float = 0.2
    """Least time between two saves of a tail's cursor, since a save waits for the disk: a crash repeats the
    work of that time. A tail without new records for that time has saved everything that is done."""
    publish_wait: float = 20.0
    """Until the publish of a transaction without an answer is sent again: it may be of gigabytes."""
    publish_absence: float = 60.0
    """For which no broker may be there meanwhile, unless the client's timeout is longer."""
    interrupted: float = 1.0
    """For which a producer waits for batches in flight when the program ends, by Ctrl-C for example."""
