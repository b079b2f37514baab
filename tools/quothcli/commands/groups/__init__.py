"""Commands about consumer groups: their administration, their dead letters, consuming."""
