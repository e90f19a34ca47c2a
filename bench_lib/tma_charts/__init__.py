"""Charts of the tensor memory accelerator (TMA), and of attention by backend."""
