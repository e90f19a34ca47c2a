"""What was measured on: machine, loaded libraries, what a stack promised."""
