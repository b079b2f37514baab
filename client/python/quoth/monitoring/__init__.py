"""Alarms in the metrics of a broker, for `quoth check`, the dashboard and `/healthz`."""
