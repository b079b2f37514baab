"""The HTTP gateway under ``/api/v1``: topics, records and groups of the broker. GATEWAY.md describes it."""
