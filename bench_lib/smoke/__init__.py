"""What torch says works over ranks, tried: each check on every rank, against the same on one rank alone."""
