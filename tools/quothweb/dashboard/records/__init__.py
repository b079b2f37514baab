"""The records of a topic: browsed, looked at, searched and followed. None of that moves a cursor."""
