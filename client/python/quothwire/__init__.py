"""The code that all sides of Quoth share: pointers, records, batches, messages, their codecs and errors.

It uses no socket, clock or thread, and opens files only in `quothwire.text.paths`. A codec turns bytes into
values, or raises a documented error.
"""
