"""`quoth doctor`: is this machine, this directory and this broker as they should be.

A check is a function that yields findings; it changes nothing, wakes nothing and leaves nothing behind. Only
the probe makes something, a topic of its own, and removes it.
"""
