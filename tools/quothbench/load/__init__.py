"""Load: servers to measure, clients that drive them, and what they send.

processes  servers that end with the benchmark         clients   processes that begin together
target     the broker or the bare loop                 bare      the least that a server can do
driver     requests encoded beforehand                 schedule  requests sent when they are due
topics     made, filled and deleted                    rates     messages and processor time of all clients
"""
