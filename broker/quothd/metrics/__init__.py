"""Measures what a broker does: amounts, durations, the state of topics and groups, free disk space."""
