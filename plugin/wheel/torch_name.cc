// An empty library with the name libtorch_cpu.so, to link the adapters with.
