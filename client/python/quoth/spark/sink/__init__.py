"""Writes rows of Spark to topics."""
