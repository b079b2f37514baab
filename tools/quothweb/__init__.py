"""The HTTP side of a broker: metrics, health, a gateway, a dashboard. A process of its own, a client of it."""
