"""Generated documentation: pages of results, the page of commands, and blocks inside other pages."""
