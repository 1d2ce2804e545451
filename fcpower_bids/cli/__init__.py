"""The command line, generated from Settings."""
