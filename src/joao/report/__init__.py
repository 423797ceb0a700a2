"""The HTML report (``joao report``), its figures, and the figures published in the paper."""
