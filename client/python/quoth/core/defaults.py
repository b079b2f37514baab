"""What holds where nothing else is said, apart from the client: a command tells of it without loading one."""

from __future__ import annotations

DEFAULT_URL = "tcp://127.0.0.1:5555"
DEFAULT_TIMEOUT_S = 10.0
BUFFER_MAX = 100_000
"""Records that wait or are in flight: 20 MB of 100-byte records, a second of a busy producer."""
