"""Dead letters of consumer groups: found, retried and dropped, by commands and by pages."""
