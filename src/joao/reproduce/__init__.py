"""The paper's tables: which cells there are, and how one is computed."""
