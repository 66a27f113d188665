// Stands for libtorch_cpu.so when the adapters are linked: it has its name and nothing in it.
