"""scripts/rdma-guest: a Linux guest with SoftRoCE that runs one command on this machine's files."""
