"""The announcements: their sockets, who has subscribed to what, and the thread that sends them."""
