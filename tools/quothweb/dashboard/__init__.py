"""The pages that a person who runs a broker looks at: its state, its topics, their records and groups."""
