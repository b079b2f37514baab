"""The configuration: its keys, where their values come from, an example, a check."""
