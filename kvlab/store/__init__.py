"""The event log and everything folded from it. Arrow on disk; no model, no cluster."""
