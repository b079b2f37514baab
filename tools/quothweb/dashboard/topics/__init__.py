"""The pages of topics: the list of them, and one with its figures, groups and settings."""
