"""The HTTP side of a broker: metrics, health, a gateway, a dashboard. A client process of the broker."""
