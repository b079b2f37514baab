"""Brokers in tests: processes, raw peers, proxies, models of what they answer."""
