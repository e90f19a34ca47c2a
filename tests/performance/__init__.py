"""What this suite itself costs: `make bench-self` measures it and writes docs/performance.md."""
