"""The only place that imports transformers: loading, the segmented cache, attention, prefill, generation, RoPE."""
