"""What several of this package's commands use: types of arguments, where programs lie, processes, Debian's mirror."""
