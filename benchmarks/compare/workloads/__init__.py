"""The workloads, a file for each kind; see `workload.py`."""
