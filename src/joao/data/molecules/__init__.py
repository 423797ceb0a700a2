"""Molecules: tables of SMILES, and their conversion to graphs with RDKit."""
