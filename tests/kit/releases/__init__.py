"""Releases of Quoth: their code, their data, and a client of any of them."""
