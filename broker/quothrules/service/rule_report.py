"""Reports of the rules process: the state of each rule set in a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from quoth.client import Client
from quoth.rules.rule_state import STATS_TOPIC, state_of
from quothwire.errors import Conflict, NotFound

STATS_BYTES, STATS_SEGMENT_BYTES = 2**20, 2**18
"""The topic keeps the last few states only."""


def save_state(client: Client, name: str, state: Mapping[str, Any]) -> int:
    """Publish the state of a rule set; returns its bytes."""
    value = json.dumps(state).encode()
    try:
        client.topic(STATS_TOPIC)
    except NotFound:
        with suppress(Conflict):  # another client has created it just now
            client.create_topic(STATS_TOPIC, max_bytes=STATS_BYTES, size_limit=STATS_SEGMENT_BYTES)
    client.publish(STATS_TOPIC, value, key=name.encode())
    return len(value)


def saved_states(client: Client) -> dict[str, dict[str, Any]]:
    """Read the last state of each rule set; none that cannot be read."""
    found: dict[str, dict[str, Any]] = {}
    with suppress(NotFound):
        for batch in client.batches(STATS_TOPIC, on_gap=lambda _: None):
            for message in batch:
                state = state_of(message.value)
                if message.key is not None and state is not None:
                    found[message.key.decode("utf-8", "replace")] = state
    return found
