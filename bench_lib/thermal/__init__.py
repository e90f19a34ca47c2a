"""Waiting until a GPU has cooled down."""
