"""What is wrong with an environment, and the one line that mends it: gathered once, then judged."""
