"""`quoth bench peers`: the same work with Redis Streams, with RabbitMQ Streams and with Quoth, in turn.

Each server is one of the benchmark's own, on loopback and on the same disk, and each side does the work in
one client process as its documentation says that it is fastest. Where a peer has several ways they are tried
first, and the fastest one is compared. Nothing counts before its server has acknowledged it, at the
durability that stands in its row.

    work        what is done, and who does it      comparison   a peer and Quoth in turn, a row for each work
    redis       Redis Streams                      rabbitmq     RabbitMQ Streams
    quoth       Quoth
"""
