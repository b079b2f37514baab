"""Embedded: the log in the process of a program, beside LevelDB, LMDB and plain files.

    command  its rounds and its table     ways  to store and to read, by level     work  what a way provides

No server takes part.
"""
