"""Copies and products with and without the tensor memory accelerator (TMA), and attention by backend."""
