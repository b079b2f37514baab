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


class Transition(Enum):
    """What can happen to it."""

    NEEDED = "needed"
    STARTED = "started"
    OPENED = "opened"
    RESTED = "rested"
    SLEPT = "slept"
    FAILED = "failed"
    DELETED = "deleted"


TABLE: dict[tuple[State, Transition], State] = {
    (State.ASLEEP, Transition.NEEDED): State.QUEUED,
    (State.QUEUED, Transition.NEEDED): State.QUEUED,
    (State.QUEUED, Transition.STARTED): State.OPENING,
    (State.OPENING, Transition.NEEDED): State.OPENING,
    (State.OPENING, Transition.OPENED): State.AWAKE,
    (State.OPENING, Transition.FAILED): State.ASLEEP,
    (State.AWAKE, Transition.NEEDED): State.AWAKE,
    (State.AWAKE, Transition.RESTED): State.CLOSING,
    (State.AWAKE, Transition.FAILED): State.ASLEEP,
    (State.AWAKE, Transition.DELETED): State.GONE,
    (State.CLOSING, Transition.NEEDED): State.CLOSING,
    (State.CLOSING, Transition.SLEPT): State.ASLEEP,
    (State.CLOSING, Transition.FAILED): State.ASLEEP,
}


def follow(state: State, happening: Transition) -> State:
    """The next state."""
    following = TABLE.get((state, happening))
    assert following is not None, f"{happening} in {state}"
    return following
