"""The code that all sides of Quoth share: pointers, records, batches, messages, their codecs and errors.

No codec uses a socket, a file, a clock or a thread: it turns bytes into values, or raises a documented error.
"""

VERSION = "0.2.0.dev0"
"""The version of this distribution. Reading the installed metadata takes longer than most commands."""
