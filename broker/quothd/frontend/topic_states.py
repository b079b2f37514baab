"""The states of a topic as the front end sees it, and the table of their changes."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of a topic."""

    HIBERNATING = "hibernating"
    """No thread, no open file."""
    QUEUED = "queued"
    """Requested, while `workers_max` topics are active."""
    OPENING = "opening"
    """Its thread opens the log."""
    OPEN = "open"
    CLOSING = "closing"
    """Its thread closes the log; requests wait until it is opened again."""
    GONE = "gone"
    """Deleted, or never made."""


class Transition(Enum):
    """A change of the state."""

    NEEDED = "needed"
    STARTED = "started"
    OPENED = "opened"
    HIBERNATED = "hibernated"
    CLOSED = "closed"
    FAILED = "failed"
    DELETED = "deleted"


TABLE: dict[tuple[State, Transition], State] = {
    (State.HIBERNATING, Transition.NEEDED): State.QUEUED,
    (State.QUEUED, Transition.NEEDED): State.QUEUED,
    (State.QUEUED, Transition.STARTED): State.OPENING,
    (State.OPENING, Transition.NEEDED): State.OPENING,
    (State.OPENING, Transition.OPENED): State.OPEN,
    (State.OPENING, Transition.FAILED): State.HIBERNATING,
    (State.OPEN, Transition.NEEDED): State.OPEN,
    (State.OPEN, Transition.HIBERNATED): State.CLOSING,
    (State.OPEN, Transition.FAILED): State.HIBERNATING,
    (State.OPEN, Transition.DELETED): State.GONE,
    (State.CLOSING, Transition.NEEDED): State.CLOSING,
    (State.CLOSING, Transition.CLOSED): State.HIBERNATING,
    (State.CLOSING, Transition.FAILED): State.HIBERNATING,
}


def follow(state: State, transition: Transition) -> State:
    """The next state."""
    following = TABLE.get((state, transition))
    assert following is not None, f"{transition} in {state}"
    return following
