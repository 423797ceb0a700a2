"""The paper's findings, judged by the records."""
