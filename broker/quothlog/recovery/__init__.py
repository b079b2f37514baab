"""Opens, verifies and repairs a log after anything that may have happened to it."""
