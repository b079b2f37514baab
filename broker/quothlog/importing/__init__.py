"""Builds logs and data directories from the files of other programs, see `importer`."""
