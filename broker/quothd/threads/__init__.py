"""The threads of a broker, and the queues between them."""
