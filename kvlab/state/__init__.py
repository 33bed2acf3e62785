"""What a KV state *is*: identity, positions, lineage, lifecycle, compatibility. Pure: no torch, no Dask, no clock."""
