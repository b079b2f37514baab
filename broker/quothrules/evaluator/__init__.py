"""The child process in which rules are evaluated, and its handle."""
