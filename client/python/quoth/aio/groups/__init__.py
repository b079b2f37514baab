"""Consumer groups for an event loop: see `quoth.groups`."""
