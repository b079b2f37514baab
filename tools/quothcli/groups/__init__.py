"""Consumer groups: their settings as options, their dead letters, the work of a member."""
