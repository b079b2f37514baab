"""The files of a data directory: topics and their settings, backups of them."""
