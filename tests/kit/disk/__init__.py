"""Disks in tests: doubles of the file system, small real ones, damage, what a loss of power leaves."""
