"""The command line: flags, environment, exit codes. The only package that creates and connects long-lived objects."""
