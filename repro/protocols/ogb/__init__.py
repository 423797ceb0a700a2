"""The large-scale setting on OGB data sets."""
