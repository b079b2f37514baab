"""The process: it follows the rule sets in the broker, runs their workers, and reports what they do."""
