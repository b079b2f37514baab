"""Connections to a broker: sockets, pools of them, requests over them."""
