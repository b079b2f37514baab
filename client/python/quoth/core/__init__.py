"""What a client decides, without sockets and clocks: calls, requests, batches on their way, merges."""
