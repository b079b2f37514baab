"""The life of a topic in the broker: every state, every event, one table.

A topic is asleep, or on its way to a worker, or awake, or on its way back. Whatever is not in the table
cannot happen; if it does, it is a defect and says so.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a topic is."""

    ASLEEP = "asleep"
    """No thread, no open file: 2 KB."""
    QUEUED = "queued"
    """Asked for, waiting until fewer than `workers_max` are active."""
    OPENING = "opening"
    """Its worker opens the log."""
    AWAKE = "awake"
    CLOSING = "closing"
    """Its worker was told to rest; what comes meanwhile waits for the next one."""
    GONE = "gone"
    """Deleted, or never made."""


class Happening(Enum):
    """What can happen to it."""

    NEEDED = "needed"
    STARTED = "started"
    OPENED = "opened"
    RESTED = "rested"
    SLEPT = "slept"
    FAILED = "failed"
    DELETED = "deleted"


TABLE: dict[tuple[State, Happening], State] = {
    (State.ASLEEP, Happening.NEEDED): State.QUEUED,
    (State.QUEUED, Happening.NEEDED): State.QUEUED,
    (State.QUEUED, Happening.STARTED): State.OPENING,
    (State.OPENING, Happening.NEEDED): State.OPENING,
    (State.OPENING, Happening.OPENED): State.AWAKE,
    (State.OPENING, Happening.FAILED): State.ASLEEP,
    (State.AWAKE, Happening.NEEDED): State.AWAKE,
    (State.AWAKE, Happening.RESTED): State.CLOSING,
    (State.AWAKE, Happening.FAILED): State.ASLEEP,
    (State.AWAKE, Happening.DELETED): State.GONE,
    (State.CLOSING, Happening.NEEDED): State.CLOSING,
    (State.CLOSING, Happening.SLEPT): State.ASLEEP,
    (State.CLOSING, Happening.FAILED): State.ASLEEP,
}


def follow(state: State, happening: Happening) -> State:
    """The next state."""
    following = TABLE.get((state, happening))
    assert following is not None, f"{happening} in {state}"
    return following
