"""What every side of Quoth shares: pointers, records, batches, messages, their codecs and errors.

Nothing in this package touches a socket, a file, a clock or a thread. Bytes in, values out, or one
documented error.
"""
