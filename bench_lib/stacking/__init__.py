"""Stacks: what they are made of, where they lie, how a process enters one."""
