"""The test kit: disks, clocks, brokers, clients and processes that tests control."""
