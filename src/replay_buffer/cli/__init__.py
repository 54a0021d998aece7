"""The command `replay-buffer`: one module for each of its commands.

A command is a function from parsed arguments to an exit code: 0 done, 1 the answer is no (problems
found, a segment in use), 2 it could not be done. Segments are opened for reading only.
"""
