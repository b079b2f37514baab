"""The machine in tests: processes, system calls, networks, booted systems, terminals."""
