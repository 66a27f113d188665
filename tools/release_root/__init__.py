"""What scripts/release-root does: keeps a root file system of each Debian release and runs commands in it."""
