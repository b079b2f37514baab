"""Consumer groups: members that share the records of a topic, and named cursors."""
