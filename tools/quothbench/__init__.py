"""`quoth bench`: how fast the broker is, measured so that somebody else gets the same answer.

Machines are shared and noisy. A figure that counts is a ratio of two things that were measured alternately in
one run, with the median of its pairs and their spread; everything else is a figure of this machine today. The
broker is a process of its own, clients are others, and what is published is stored on the disk that `--dir`
lies on.

    figures     quantiles, spreads, pairs          report      conditions, then rows as they are measured
    processes   clients that begin together        target      the broker that is measured
    load        requests encoded beforehand        bare        the loop that nothing can be faster than
    topics      made, filled, deleted again        rates       what all clients got done, and what it cost
    schedule    requests sent when they are due    tailing     records on their way to a tail
    server      a process until it is not needed   growth      what must not grow with the data
    options     what the commands share            commands    a module for each command
    peers       the same work with other systems
    spark       topics and Spark beside Parquet
"""
