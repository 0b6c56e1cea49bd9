"""The command line: flags, environment, exit codes, and the only place where long-lived objects are made and wired."""
