"""The ports to the operating system: files, locks, the clock, room on the disk, failed writes."""
