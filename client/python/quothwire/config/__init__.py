"""Configurations: frozen dataclasses with described keys, read from arguments, variables and a file."""
