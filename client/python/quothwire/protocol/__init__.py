"""The two protocols between clients and brokers: messages, operations, codecs."""
