"""Decides which clients may connect, and what each may do: keys, rights, quotas."""
