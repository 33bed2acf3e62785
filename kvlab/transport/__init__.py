"""How a segment crosses a process or a host: shared memory, the same-host proof, Dask's serializers."""
