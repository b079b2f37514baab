"""Default arguments. A command reads them without loading a client."""

from __future__ import annotations

DEFAULT_URL = "tcp://127.0.0.1:5555"
DEFAULT_TIMEOUT_S = 10.0
BUFFER_MAX = 100_000
"""Records that wait or are in flight: 20 MB of 100-byte records, a second of a busy producer."""
