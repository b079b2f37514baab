"""Poe's TCP protocol: `protocol` has its bytes, `server` the connections, `topics` the calls of a client."""
