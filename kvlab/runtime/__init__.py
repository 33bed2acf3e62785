"""Dask lives here: the lab, its cluster, the conductor of a run, tasks, handles."""
