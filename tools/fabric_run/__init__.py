"""Ranks on an emulated fabric; the command line is in command.py."""
