"""Compiled functions, see `quothwire.native`. Empty where there was no compiler."""
