"""Load: servers to measure, clients that drive them, and what they send."""
