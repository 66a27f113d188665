"""What several of this package's commands use: options and their types, how they end, where programs lie,
processes, Debian's mirror."""
