"""One adapter for each peer that makes views of steps; see `peers`.

`make(workload)` returns a full buffer with `n_step`, `sequences` or `stacks`, as far as the peer
has them. What is drawn has the same content everywhere, but for what `NOTE` of the peer says.
"""
