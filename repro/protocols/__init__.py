"""The paper's protocols: one folder each with its grid, its run and its table."""
