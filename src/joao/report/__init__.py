"""The report page (``joao report``) and its figures."""
