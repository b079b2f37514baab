"""The command for routing rules."""
