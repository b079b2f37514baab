"""`quoth bench group`: members of a consumer group, beside a plain reader and the consumers of other systems.

Members are processes. Each record counts once over all of them, and a measurement fails unless all records
were delivered exactly once and acknowledged.
"""
