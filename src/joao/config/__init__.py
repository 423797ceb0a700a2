"""Recipes: everything that decides a pre-training, as TOML, and the objects built from it."""
