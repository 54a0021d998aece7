"""One adapter for each peer, for this package and for the floors.

An adapter has `TITLE`, `INSTALL` (what pip installs, step by step), `CAN` (the workload options it
serves) and `make(workload)`, which returns a full buffer whose methods (`add_one`, `add_batch`,
`sample`, `update`, ...) give the `Call` to be timed. It imports its library inside `make`, so that
the harness can read the first three anywhere. A method it lacks is a cell it lacks.
`PYTHONS`, if given, lists the Python versions it installs on; `NOTE` is a line under the tables;
`steps()` is called for what pip installs when a constant cannot tell. What a peer makes of steps is
in `views/`, in a file of the same name.
"""
