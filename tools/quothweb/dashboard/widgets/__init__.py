"""Tables and charts: one element each, which the browser draws from plain values."""
