"""Records to tables and pages."""
