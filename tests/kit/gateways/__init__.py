"""Clients of the protocols of gateways."""
