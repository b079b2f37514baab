"""Observes the broker, and offers what it finds: metrics for Prometheus, health, data for the pages."""
