"""The command line: one file per group of commands; each command parses, calls one library function and prints."""
