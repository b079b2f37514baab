"""Decides what each client may do, and counts what it has: the clients file, rights, quotas, the audit."""
