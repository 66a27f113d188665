"""What scripts/run-containers does: starts the ranks of one training in containers, with podman or docker."""
