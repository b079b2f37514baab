"""Publishing over HTTP: the records of a body, and retries that are stored once."""
