"""The configuration: its keys, the sources of their values, an example file, a check."""
