"""Spark in tests: sessions, clusters, queries, archives."""
