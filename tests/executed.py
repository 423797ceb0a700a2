"""A function for other processes. This module imports nothing, so that they start fast."""


def execute(connection, code):
    """Run Python code that can use ``connection``."""
    exec(code, {"connection": connection})
