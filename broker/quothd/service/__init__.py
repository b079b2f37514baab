"""What a daemon has around the broker: events in its log, the service manager, the scrubber."""
