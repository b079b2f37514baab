"""The pages of consumer groups: the list of them, and one with its members and its dead letters."""
