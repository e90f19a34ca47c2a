"""What a process pays once: its context, the first use of its libraries, with lazy and eager loading."""
