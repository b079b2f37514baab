"""Commands about a broker: run it, install it, look at it, change its topics."""
