"""Consumer groups over HTTP: the groups of a topic, and work on their records."""
