"""Charts of whole processes: several that share a GPU, and what one pays once."""
