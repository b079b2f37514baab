"""Conditions, expressions and templates over one record."""
