"""The connections of clients: their keys, the memory they hold, and their ends."""
