"""Releases of Quoth: their code, data and packages, and a client of any of them."""
