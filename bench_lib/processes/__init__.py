"""Processes of one's own, and how they end with the one that started them."""
