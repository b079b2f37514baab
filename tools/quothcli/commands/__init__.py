"""The commands of `quoth`, one file a command."""
