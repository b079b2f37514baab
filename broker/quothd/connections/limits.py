"""Fits the limits of a configuration to the machine."""

from __future__ import annotations

import resource
from dataclasses import replace

from quothd.config.config import MEMORY_LEAST, Config
from quothd.connections.memory import SHARE
from quothd.service.process_memory import memory_of_machine

REQUESTS_PART = 4
"""Of `memory_max`: all requests in progress take no more."""
CONNECTIONS_LEAST, CONNECTIONS_MOST = 64, 100_000


def fitted(config: Config) -> Config:
    """Return a configuration with numbers where it leaves a limit to the machine."""
    memory = config.memory_max or max(MEMORY_LEAST, memory_of_machine() // SHARE)
    return replace(
        config,
        memory_max=memory,
        connections_max=config.connections_max or _connections_that_fit(),
        request_bytes_max=min(config.request_bytes_max, memory // REQUESTS_PART),
    )


def _connections_that_fit() -> int:
    """Return half of the descriptors that this process may have; the other half is for topics."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(max(soft // 2, CONNECTIONS_LEAST), CONNECTIONS_MOST) if soft > 0 else CONNECTIONS_MOST
