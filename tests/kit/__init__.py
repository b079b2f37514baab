"""The doubles: what stands in for a disk, a clock, a broker in the tests."""
