"""examples/real_programs/torchft_replicas.py over our collectives, with the class that docs/pytorch.md shows."""

import pathlib

import gloo_bypass
import torchft
from torchft.process_group import ProcessGroupWrapper

EXAMPLE = pathlib.Path(__file__).resolve().parents[4] / "examples" / "real_programs" / "torchft_replicas.py"


class ProcessGroupBypass(ProcessGroupWrapper):
    def _create_pg(self, store, rank, world_size):
        return gloo_bypass.make_group(store, rank, world_size, self._timeout)

    def getBackendName(self):
        return "torchft-bypass"


torchft.ProcessGroupGloo = ProcessGroupBypass
# Not runpy: the program starts itself again, by sys.argv.
exec(compile(EXAMPLE.read_text(), EXAMPLE, "exec"))
