"""Blocks."""

BLOCKS = {}
