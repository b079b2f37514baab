"""The rules of a set applied to records, without input and output."""
