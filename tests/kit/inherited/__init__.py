"""Files of other programs whose logs can be imported, and imports of them."""
