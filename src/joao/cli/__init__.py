"""The command line: one file for each command or pair of related commands, `main` with the app."""
