"""Computes statistics of topics by windows of time, in the workers that read the records.

windows.py     the windows of a range, in a task
survey.py      the windows of topics, in the driver
lags.py        the lags of groups and named cursors, in the driver
following.py   the windows that have ended, for ever, with a checkpoint
"""
