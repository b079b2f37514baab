"""Statistics of topics by windows of time, made where the records are read.

distinct.py    how many different keys, about, in a kilobyte or eight
windows.py     a range as windows: what a task does
survey.py      stretches of topics as windows: what the driver does
following.py   the windows that are over, for ever, and how far that is
"""
