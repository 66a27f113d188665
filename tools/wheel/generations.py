"""The generations of Gloo that PyTorch's wheels carry, and the packages of Debian that have the headers of each.

PyTorch's wheels contain Gloo without its headers. Debian's libgloo-dev of some release has those of the same revision,
or of one with the same classes; libtorch-dev of that release has the header of PyTorch's registry of devices.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    name: str  # of its folder and, behind libgloo_bypass_, its library
    releases: tuple  # of PyTorch
    debian: str  # the release whose packages have the headers
    revision: str  # how the version of libgloo-dev begins that was compared with PyTorch's Gloo


# PyTorch 2.8 carries Gloo of June 2025, between the two; no release of Debian has its headers. Wheels before 2.7 have
# C++'s old ABI.
GENERATIONS = (
    Generation("gloo_2023", ("2.7",), "trixie", "0.0~git20231202"),
    Generation("gloo_2025", ("2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"), "forky", "0.0~git20250912"),
)
