"""Generators of documentation pages and blocks."""
