"""Eviction: which K/V goes when room is needed. One policy a file; pure, without a clock."""
