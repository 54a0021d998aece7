"""What keeps the rows of a buffer: one module for each way. See engine.py."""
