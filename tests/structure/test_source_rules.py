"""The direction of dependencies, and the purity of what knows no clock and no socket, checked on the sources.

A rule that exists only in a document does not hold for long.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

TRAINER_SHARES = ["tools/common", "transport", "plugin/compatibility/torch"]
# The trainer's rooms from the bottom to the top. Methods of training together (averaging/, sharding/, ...) know what is
# common to them, plain data parallelism too, and not each other; what chooses among them is beside the common part.
# What measures a whole step (tracing/, evaluation/) stands above the methods, the counters of metrics/ below.
COUNTERS = [f"trainer/metrics/{name}.h" for name in ("byte_counter", "metrics", "step_markers")]
MODEL_ROOMS = ["trainer/config", "trainer/files", "trainer/model", "trainer/optimizer"]
COMMON_TO_METHODS = [
    f"trainer/distributed/{name}.h"
    for name in ("clipping", "communicator", "data_parallel", "group_communicator", "parallelism", "rank_state")
]
METHOD_MAY_INCLUDE = [*MODEL_ROOMS, *COUNTERS, *COMMON_TO_METHODS]
TRAINER_MAY_INCLUDE = {
    "trainer/files": [],
    "trainer/config": ["trainer/files"],
    "trainer/metrics": ["trainer/config", "trainer/files"],
    "trainer/data": ["trainer/config", "trainer/files", *COUNTERS],
    "trainer/model": ["trainer/config", "trainer/files"],
    "trainer/optimizer": ["trainer/config", "trainer/files", "trainer/model"],
    "trainer/distributed/averaging": [*METHOD_MAY_INCLUDE, "trainer/data/sampler.h"],  # its permutation
    "trainer/distributed/compression": METHOD_MAY_INCLUDE,
    "trainer/distributed/model_parallel": METHOD_MAY_INCLUDE,
    "trainer/distributed/sharding": METHOD_MAY_INCLUDE,
    "trainer/distributed/elastic": ["trainer/config", "trainer/files", "trainer/distributed/launcher.h"],
    "trainer/distributed": [
        *MODEL_ROOMS,
        *COUNTERS,
        "trainer/distributed",
        "collectives/c_api.h",
        "collectives/reduce.h",
    ],
    "trainer/checkpoint": [*MODEL_ROOMS, "trainer/distributed"],
    "trainer/metrics/evaluation": [*MODEL_ROOMS, "trainer/data", "trainer/distributed"],
    "trainer/metrics/tracing": [*MODEL_ROOMS, "trainer/distributed"],
    "trainer": ["trainer"],
}
# What executors of collective operations stand on; they do not know each other.
EXECUTORS_SHARE = [
    f"collectives/{name}.h" for name in ("executor", "interruption", "operation", "reduce", "rendezvous", "vector_part")
]
# The rooms that a room may include from (besides itself), with their contents. A file belongs to the deepest room in
# this list. Siblings do not know each other.
MAY_INCLUDE = {
    "transport/compatibility/gloo": [],
    "transport/base": [],
    "transport/network": ["transport/base"],
    "transport/wire": ["transport/base"],
    "transport/channel": ["transport/base"],
    "transport/matching": ["transport/base", "transport/channel"],
    "transport/capture": ["transport/base", "transport/wire"],
    "transport/core": ["transport/base", "transport/wire", "transport/channel", "transport/matching"],
    "transport/security": ["transport/base", "transport/wire"],
    "transport/progress": ["transport/base"],
    "transport/sessions": ["transport/base", "transport/channel", "transport/progress", "transport/security"],
    "transport/pairs": ["transport/base", "transport/channel", "transport/progress", "transport/sessions"],
    "transport/datagram": [
        "transport/base",
        "transport/wire",
        "transport/channel",
        "transport/core",
        "transport/progress",
        "transport/security",
        "transport/sessions",
    ],
    "transport/dpdk": [
        "transport/base",
        "transport/wire",
        "transport/capture",
        "transport/channel",
        "transport/core",
        "transport/datagram",
        "transport/network",
        "transport/pairs",
        "transport/progress",
        "transport/sessions",
        "transport/udp",
        "transport/verbs",
    ],  # their port and transport, between hosts
    "transport/udp": [
        "transport/base",
        "transport/wire",
        "transport/channel",
        "transport/core",
        "transport/datagram",
        "transport/network",
        "transport/progress",
    ],
    "transport/verbs": [
        "transport/base",
        "transport/channel",
        "transport/matching",
        "transport/network",
        "transport/progress",
        "transport/security",
        "transport/sessions",
    ],
    "transport/gloo": [
        "transport/base",
        "transport/wire",
        "transport/channel",
        "transport/progress",
        "transport/compatibility/gloo",
    ],
    "transport/process": ["transport"],
    "collectives": ["transport", "collectives"],
    "collectives/schedule": ["transport/base", "collectives/operation.h"],
    "collectives/memory": ["transport", *EXECUTORS_SHARE],
    "collectives/network": [
        "transport/base",
        "transport/channel",
        "transport/progress",
        "collectives/schedule",
        "collectives/group.h",  # its messages
        *EXECUTORS_SHARE,
    ],
    "plugin/compatibility/torch": [],
    "plugin/torch": ["transport", "collectives/c_api.h", "collectives/c_table.h", "plugin/compatibility/torch"],
    "plugin/wheel": ["transport", "plugin/torch", "plugin/compatibility/torch"],
    "plugin/python": ["collectives"],  # the C header only: the extension links with nothing of ours
    "plugin/cpp/include": [],  # what users compile against: nothing of the sources
    "plugin/cpp": ["transport"],
    "tools/common": ["transport/base"],
    "tools/fabric/core": ["transport/base"],
    "tools/fabric/switch": ["tools/common", "transport", "tools/fabric"],
    "tools/simulation/core": [
        "transport/base",
        "transport/wire",
        "transport/channel",
        "transport/core",
        "tools/fabric/core",
    ],
    "tools": ["transport"],
    "tools/all_reduce_perf": ["tools/common", "transport", "collectives/group.h"],
    "tools/capture": ["tools/common", "transport", "collectives/network/wire.h"],
    "tools/fabric": ["tools/common", "tools/fabric/core"],
    "tools/schedule": ["tools/common", "collectives/operation.h", "collectives/schedule"],
    "tools/simulation/worlds": [
        "transport/base",
        "transport/wire",
        "transport/channel",
        "transport/core",
        "transport/security",
        "collectives/operation.h",
        "collectives/network/network_operations.h",
        "collectives/schedule",
        "tools/fabric/core",
        "tools/simulation/core",
    ],
    "tools/simulation": [
        "tools/common",
        "tools/fabric",
        "tools/simulation/core",
        "tools/simulation/worlds",
        "transport",
    ],
    "tools/summation": ["tools/common", "tools/all_reduce_perf", "transport"],
    "tools/tune": [
        "tools/common",
        "tools/all_reduce_perf",
        "transport",
        "collectives/group.h",
        "collectives/memory/host_meeting.h",  # which ranks are of one host
        "collectives/schedule",
    ],
    **{room: [*TRAINER_SHARES, *below] for room, below in TRAINER_MAY_INCLUDE.items()},
}
PURE = [
    "transport/core",
    "transport/security",
    "transport/matching",
    "transport/wire",
    "transport/channel",
    "collectives/schedule",
    "tools/fabric/core",
    "tools/simulation/core",
    "tools/simulation/worlds",
]
IMPURE_FILES = ["tools/fabric/core/description_file.cc"]  # reads the file that the others get as text
# Time arrives as an argument (std::chrono's durations are allowed, its clocks are not), and so does entropy; nothing
# blocks.
IMPURE_INCLUDES = re.compile(
    r"^(sys/|netinet/|arpa/|net/|linux/|rte_|infiniband/|gloo/|torch/|c10/|ATen/|"
    r"(pthread|poll|unistd|fcntl|time|signal|stdio|netdb|ifaddrs|sched|semaphore)\.h$|"
    r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|atomic|random|ctime|"
    r"iostream|fstream|cstdio|filesystem|csignal)$)"
)
IMPURE_WORDS = re.compile(
    r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|monotonicNow|getenv|setenv|environ|"
    r"rand|srand|"
    r"random_device|mt19937|thread_local|socket|sleep_for|usleep|nanosleep|__rdtsc|rte_\w+)\b"
)
# Conditions on a build of Gloo or PyTorch, its features or version: allowed in headers of compatibility/ only.
VERSION_CONDITION = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\b"
    r"((?:GLOO|TORCH)_(?:VERSION|STORE|SHARED)\w*|GLOO_BYPASS_(?:GLOO|TORCH)_\w+)"
)
# But for compatibility/ in them.
VERSION_FREE = ["collectives", "transport", "plugin", "tools", "trainer", "tests", "examples"]
# Meson decides whether a back-end is built in: it compiles back_end.cc or back_end_missing.cc, and a test's media.
BACK_END_FOLDERS = ["transport/dpdk", "transport/udp", "transport/verbs"]
BACK_END_CONDITION = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b.*(DPDK|RDMA|UDP|VERBS)", re.IGNORECASE
)
# Gloo's own ibverbs transport is not one of the back-ends.
GLOOS_OWN = re.compile(r"GLOO_BYPASS_GLOO_\w+|GLOO_(?:HAVE|USE)_\w+")
# The Python packages of tools/ that a package may import from (besides itself): common/ knows none of them.
PYTHON_MAY_IMPORT = {
    "common": [],
    "doctor": ["common"],
    "rdma_guest": ["common"],
    "release_root": ["common"],
    "wheel": ["common"],
    "containers": ["common"],
    "report": ["common"],
    "model": ["common", "report"],
    "fabric_run": ["common", "rdma_guest"],
    "compare_links": ["common", "report", "fabric_run"],
    "compare_programs": ["common", "report"],
    "execution_traces": ["common"],
    "replay": ["common", "execution_traces"],
    "study": ["common", "report", "model", "fabric_run", "execution_traces"],
}
PYTHON_IMPORT = re.compile(
    r"^\s*(?:from|import) (gloo_bypass_tools[.\w]*|\.[.\w]*)(?: import \(?([\w, ]+))?", re.MULTILINE
)
READS_ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")


def without_comments_and_strings(text):
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL)


def included(text):
    """(line number, path) of each include, in the order of the file."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1)


def sources(root, folder):
    return sorted(path for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc"))


def room_of(name):
    return max((room for room in MAY_INCLUDE if name.startswith(room + "/")), key=len, default=None)


def direction_faults(root):
    faults = []
    for top in {room.partition("/")[0] for room in MAY_INCLUDE}:
        for path in sources(root, top):
            name = path.relative_to(root).as_posix()
            own = room_of(name)
            allowed = MAY_INCLUDE.get(own, [])
            for number, target in included(path.read_text()):
                room = room_of(target)
                if room in (None, own) or any(target == one or target.startswith(one + "/") for one in allowed):
                    continue
                faults.append(f"{name}:{number} includes {target}")
    return sorted(faults)


def purity_faults(root):
    faults = []
    for folder in PURE:
        for path in sources(root, folder):
            if path.relative_to(root).as_posix() in IMPURE_FILES:
                continue
            text = path.read_text()
            faults += [
                f"{path.relative_to(root)}:{number} includes {target}"
                for number, target in included(text)
                if IMPURE_INCLUDES.match(target)
            ]
            for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
                faults += [f"{path.relative_to(root)}:{number} uses {word}" for word in IMPURE_WORDS.findall(line)]
    return faults


def environment_faults(root):
    """One file reads the environment; code that starts ranks (trainer/, tools/) may read RANK and the like."""
    faults = []
    for folder in ("transport", "plugin", "tools/fabric/core", "tools/simulation/core", "tools/simulation/worlds"):
        for path in sources(root, folder):
            if path.relative_to(root).as_posix() == "transport/process/environment.cc":
                continue
            for number, line in enumerate(without_comments_and_strings(path.read_text()).splitlines(), 1):
                if READS_ENVIRONMENT.search(line):
                    faults.append(f"{path.relative_to(root)}:{number} reads the environment")
    return faults


def escaping_faults(root):
    """Texts of peers, stores and files become printable in one way, which knows UTF-8 and no locale."""
    return [
        f"{path.relative_to(root)}:{number} asks what is printable: transport/base/printable.h does"
        for folder in ("transport", "collectives", "plugin", "tools", "trainer")
        for path in sources(root, folder)
        for number, line in enumerate(without_comments_and_strings(path.read_text()).splitlines(), 1)
        if re.search(r"\bis(print|cntrl|graph)\(", line)
    ]


def test_Sources_TextsOfOthers_AreMadePrintableInOnePlace():
    assert escaping_faults(ROOT) == []


def test_Sources_AllFolders_IncludeInOneDirection():
    assert direction_faults(ROOT) == []


def version_faults(root):
    faults = []
    for folder in VERSION_FREE:
        for path in sources(root, folder):
            if "compatibility" in path.relative_to(root).parts:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = VERSION_CONDITION.match(line)
                if match:
                    faults.append(f"{path.relative_to(root)}:{number} depends on {match.group(1)}")
    return faults


def test_Sources_AllFoldersButCompatibility_AskForNoVersion():
    assert version_faults(ROOT) == []


def condition_faults(root):
    faults = []
    for folder in VERSION_FREE:
        for path in sources(root, folder):
            if any(path.is_relative_to(root / own) for own in BACK_END_FOLDERS):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = BACK_END_CONDITION.match(GLOOS_OWN.sub("", line))
                if match:
                    faults.append(f"{path.relative_to(root)}:{number} depends on {match.group(1)}")
    return faults


def test_Sources_AllFoldersButTheBackEnds_AskForNoBackEnd():
    assert all(sources(ROOT, folder) for folder in BACK_END_FOLDERS), "nothing to leave out: were the folders moved?"
    assert condition_faults(ROOT) == []


@pytest.mark.parametrize(
    "folder, line, faults",
    [
        ("transport/process", "#ifdef GLOO_BYPASS_HAVE_DPDK", 1),
        ("tests/conformance", "#if defined(TEST_VERBS) && 1", 1),
        ("tools", '  #  elif __has_include("transport/udp/udp_port.h")', 1),
        ("transport/udp", "#ifdef UDP_SEGMENT", 0),
        ("transport/compatibility/gloo", "#if GLOO_BYPASS_GLOO_IBVERBS_UNBOUND", 0),
        ("plugin", "// #ifdef DPDK", 0),
    ],
)
def test_Checker_ConditionAboutABackEnd_IsFoundOutsideTheBackEnds(tmp_path, folder, line, faults):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "planted.cc").write_text(f"#include <string>\n{line}\n#endif\n")
    assert len(condition_faults(tmp_path)) == faults


def import_faults(root):
    """Imports are absolute, so that they show where a module belongs."""
    tree, faults = root / "tools", []
    for path in sorted(tree.rglob("*.py")):
        package = path.relative_to(tree).parts[0]
        for match in PYTHON_IMPORT.finditer(path.read_text()):
            module, names = match.groups()
            targets = module.split(".")[1:2] or [name.strip() for name in (names or "").split(",")]
            for target in targets:
                if target not in (package, *PYTHON_MAY_IMPORT.get(package, [])):
                    faults.append(f"{path.relative_to(root)} imports {module}{f', {target}' if target else ''}")
    return faults


def test_Sources_PythonPackages_ImportInOneDirection():
    packages = {path.parent.name for path in (ROOT / "tools").glob("*/__init__.py")}
    assert packages == set(PYTHON_MAY_IMPORT)
    assert import_faults(ROOT) == []


@pytest.mark.parametrize(
    "package, line",
    [
        ("common", "from gloo_bypass_tools.report import records"),
        ("report", "    from gloo_bypass_tools import study"),
        ("report", "import gloo_bypass_tools.model.ring"),
        ("model", "from . import ring"),
        ("study", "from .cells import Cell"),
    ],
)
def test_Checker_PythonImportPlanted_IsFound(tmp_path, package, line):
    planted = tmp_path / "tools" / package / "planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"from gloo_bypass_tools.common import processes\nimport re\n{line}\n")
    assert len(import_faults(tmp_path)) == 1


def test_Sources_FoldersWithoutClockAndSocket_ArePure():
    assert all(sources(ROOT, folder) for folder in PURE), "nothing to check: were the folders moved?"
    assert purity_faults(ROOT) == []


def test_Sources_TransportAndPlugin_ReadEnvironmentInOneFile():
    assert environment_faults(ROOT) == []


@pytest.mark.parametrize(
    "folder, line, check",
    [
        ("transport/core", "#include <sys/socket.h>", purity_faults),
        ("transport/wire", "#include <mutex>", purity_faults),
        ("transport/channel", "#include <unistd.h>", purity_faults),
        ("transport/core", "auto now = std::chrono::steady_clock::now();", purity_faults),
        ("transport/core", 'const char* x = getenv("X");', purity_faults),
        ("transport/core", "#include <rte_mbuf.h>", purity_faults),
        ("tools/fabric/core", "#include <thread>", purity_faults),
        ("tools/fabric/core", '#include "tools/fabric/switch/mac_table.h"', direction_faults),
        ("tools/simulation/core", '#include "transport/datagram/packet_port.h"', direction_faults),
        ("tools/simulation/core", "#include <atomic>", purity_faults),
        ("transport/core", '#include "transport/datagram/packet_port.h"', direction_faults),
        ("transport/gloo", '#include "transport/dpdk/dpdk_port.h"', direction_faults),
        ("transport/dpdk", '#include "transport/process/settings.h"', direction_faults),
        ("plugin/cpp/include/gloo_bypass", '#include "transport/process/settings.h"', direction_faults),
        ("transport/dpdk", 'std::getenv("HOME");', environment_faults),
        ("tools/capture", "if (std::isprint(c) == 0) c = '?';", escaping_faults),
        ("transport/compatibility/gloo", '#include "transport/gloo/device.h"', direction_faults),
        ("transport/verbs", '#include "transport/compatibility/gloo/transport.h"', direction_faults),
        ("transport/gloo", "#if GLOO_BYPASS_GLOO_SHARED_STORE", version_faults),
        ("tests/plugin", "#ifdef GLOO_BYPASS_TORCH_LAZY_INIT", version_faults),
        ("tools", "#if GLOO_VERSION > 500", version_faults),
        ("tools/common", '#include "tools/all_reduce_perf/perf_options.h"', direction_faults),
        ("tools", '#include "trainer/config/options.h"', direction_faults),
        ("trainer/config", '#include "trainer/model/gpt2.h"', direction_faults),
        ("trainer/metrics", '#include "trainer/metrics/tracing/tracer.h"', direction_faults),
        ("trainer/model", '#include "trainer/distributed/communicator.h"', direction_faults),
        ("trainer/distributed/sharding", '#include "trainer/distributed/averaging/averaging.h"', direction_faults),
        ("trainer/checkpoint", '#include "trainer/training.h"', direction_faults),
    ],
)
def test_Checker_FaultPlanted_IsFound(tmp_path, folder, line, check):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "planted.cc").write_text(f"// a comment\n{line}\n")
    assert check(tmp_path)


def test_Checker_WordInCommentOrString_IsIgnored(tmp_path):
    (tmp_path / "transport/core").mkdir(parents=True)
    (tmp_path / "transport/core/clean.cc").write_text(
        '// no socket, no rand\nconst char* text = "socket";\n/* getenv\n rand */\n'
    )
    assert purity_faults(tmp_path) == []
