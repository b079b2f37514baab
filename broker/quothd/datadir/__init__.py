"""The topics of a data directory as files, their backup and their restore."""
