"""The states of rule sets as the process that executes them publishes them, and the names of their groups."""

from __future__ import annotations

import json
from typing import Any

STATS_TOPIC = "quoth.rules.stats"
"""A record for each state of a rule set: its name is the key, a JSON object the value."""
GROUP_PREFIX = "rules."


def rule_set_of(group: str) -> str:
    """Return the name of the rule set that a group belongs to, "" for another group.

    A group is named by its rule set, ``~2`` for the second beginning of it, and ``@5s`` for a delay.
    """
    if not group.startswith(GROUP_PREFIX):
        return ""
    return group.removeprefix(GROUP_PREFIX).partition("@")[0].partition("~")[0]


def state_of(value: bytes) -> dict[str, Any] | None:
    """Return the state in a record; None if it holds none."""
    try:
        state = json.loads(value)
    except ValueError:
        return None
    return state if isinstance(state, dict) else None
