"""Reads the topics of a data directory as files, without a broker."""
