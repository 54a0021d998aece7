"""One adapter for each peer that makes views of steps; see `peers`.

`make(workload)` returns a full buffer with `n_step`, `sequences` or `stacks`, as far as the peer
has them. A peer that makes its n steps when rows are added draws plain rows.
"""
