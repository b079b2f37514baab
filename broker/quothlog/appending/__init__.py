"""Appends batches to the active segment and makes them durable."""
