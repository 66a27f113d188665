"""Every link against the kernel's TCP; the command line is in command.py."""
