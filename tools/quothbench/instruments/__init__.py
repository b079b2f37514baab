"""Instruments: what each command measures."""
