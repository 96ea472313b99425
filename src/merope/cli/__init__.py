"""The command line: parse, call, print. Each command is one file, imported only when it is asked for."""
