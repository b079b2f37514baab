"""Instruments: the measurements of each command, and the columns of its table."""
