"""Training steps over ranks: with communication, without it, and what of it the computation hides."""
