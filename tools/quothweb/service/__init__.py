"""The process: its log, its connections, its start and its end."""
