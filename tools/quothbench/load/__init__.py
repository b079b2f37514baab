"""Load: the broker that is measured, the clients that drive it, what they send."""
