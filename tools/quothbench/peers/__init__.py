"""`quoth bench peers`: the same work with Redis Streams, RabbitMQ Streams, Poe and Quoth, in turn.

Each server is one of the benchmark's own, on loopback and on the same disk. Each system does the work in one
client process, a peer in each way that may be its fastest, a row for each. A message counts when its server
has acknowledged it, at the durability in the row.
"""
