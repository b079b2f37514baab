"""The keys of clients and brokers, as their files hold them."""
