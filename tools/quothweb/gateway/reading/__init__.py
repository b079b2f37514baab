"""Reading over HTTP: ranges of records, formats, caches, and streams that follow a topic."""
