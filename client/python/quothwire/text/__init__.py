"""Texts that people write: spans, sizes, times, names, paths, environment variables."""
