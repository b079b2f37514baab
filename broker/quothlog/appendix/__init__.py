"""Reads the files of appendix and the data directories of Poe, which consist of them."""
