"""The services around a broker: its log, the notifications of systemd, the background check of segments."""
