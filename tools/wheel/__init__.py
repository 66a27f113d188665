"""What scripts/build-wheel does: the headers of each Gloo, the wheel for PyTorch from pip, the environments to try it
in."""
