"""Floods: attackers as processes of their own against a real broker, and the good client beside them."""
