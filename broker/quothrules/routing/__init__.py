"""The workers: each takes the records of one topic, evaluates them, and publishes what the rules write."""
