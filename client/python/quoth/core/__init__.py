"""The client's state and decisions, without sockets."""
