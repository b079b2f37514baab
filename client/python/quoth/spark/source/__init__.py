"""Reads topics into Spark: `format("quoth")`, and ranges for tasks."""
