"""Workflow → G_s: prefix discovery, sibling fusion, validation. Pure: tokenization is passed in."""
