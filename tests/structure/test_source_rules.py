"""The direction of dependencies, and the purity of transport/core and transport/wire, checked on the sources.

A rule that exists only in a document does not hold for long.
"""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Which folders a folder may include from (itself always). Siblings do not know each other.
MAY_INCLUDE = {
    "compatibility/gloo": [],
    "transport/base": [],
    "transport/wire": ["transport/base"],
    "transport/capture": ["transport/base", "transport/wire"],
    "transport/core": ["transport/base", "transport/wire"],
    "transport/io": ["transport/base", "transport/wire", "transport/core"],
    "transport/dpdk": ["transport/base", "transport/wire", "transport/capture", "transport/core", "transport/io"],
    "transport/verbs": ["transport/base", "transport/wire", "transport/core", "transport/io"],
    "transport/gloo": ["transport/base", "transport/wire", "transport/core", "transport/io", "compatibility/gloo"],
    "plugin": ["transport"],
    "include/gloo_bypass": [],  # what users compile against: nothing of the sources
    "device": ["transport", "plugin"],
    "fabric": ["transport/base"],
    "simulation": ["transport/base", "transport/wire", "transport/core", "fabric"],
    "tools": ["transport", "plugin", "compatibility/gloo", "fabric", "simulation"],
    "trainer": ["transport", "plugin"],
}
PURE = ["transport/core", "transport/wire", "fabric", "simulation"]
IMPURE_FILES = ["fabric/description_file.cc"]  # reads the file that the others get as text
# Time arrives as an argument (std::chrono's durations are fine, its clocks are not), so does entropy; nothing blocks.
IMPURE_INCLUDES = re.compile(
    r"^(sys/|netinet/|arpa/|net/|linux/|rte_|infiniband/|gloo/|torch/|c10/|ATen/|"
    r"(pthread|poll|unistd|fcntl|time|signal|stdio|netdb|ifaddrs|sched|semaphore)\.h$|"
    r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|atomic|random|ctime|"
    r"iostream|fstream|cstdio|filesystem|csignal)$|spdlog/)")
IMPURE_WORDS = re.compile(
    r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|monotonicNow|getenv|setenv|environ|rand|srand|"
    r"random_device|mt19937|thread_local|socket|sleep_for|usleep|nanosleep|__rdtsc|rte_\w+)\b")
# What a build of Gloo or PyTorch can do, or which one it is: for the headers of compatibility/ only.
VERSION_CONDITION = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\b((?:GLOO|TORCH)_(?:VERSION|STORE|SHARED)\w*|GLOO_BYPASS_(?:GLOO|TORCH)_\w+)")
VERSION_FREE = ["transport", "fabric", "simulation", "plugin", "include", "device", "tools", "trainer", "tests", "examples"]
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


def direction_faults(root):
    faults = []
    for folder, allowed in MAY_INCLUDE.items():
        for path in sources(root, folder):
            for number, target in included(path.read_text()):
                owner = next((f for f in MAY_INCLUDE if target.startswith(f + "/")), None)
                if owner and owner != folder and not any((owner + "/").startswith(f + "/") for f in allowed):
                    faults.append(f"{path.relative_to(root)}:{number} includes {target}")
    return faults


def purity_faults(root):
    faults = []
    for folder in PURE:
        for path in sources(root, folder):
            if path.relative_to(root).as_posix() in IMPURE_FILES:
                continue
            text = path.read_text()
            faults += [f"{path.relative_to(root)}:{number} includes {target}"
                       for number, target in included(text) if IMPURE_INCLUDES.match(target)]
            for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
                faults += [f"{path.relative_to(root)}:{number} uses {word}" for word in IMPURE_WORDS.findall(line)]
    return faults


def environment_faults(root):
    """The environment is read in one file; what starts ranks (trainer/, tools/) may look at RANK and its like."""
    faults = []
    for folder in ("transport", "fabric", "simulation", "plugin", "device", "include/gloo_bypass"):
        for path in sources(root, folder):
            if path.relative_to(root).as_posix() == "plugin/environment.cc":
                continue
            for number, line in enumerate(without_comments_and_strings(path.read_text()).splitlines(), 1):
                if READS_ENVIRONMENT.search(line):
                    faults.append(f"{path.relative_to(root)}:{number} reads the environment")
    return faults


def test_Sources_AllFolders_IncludeInOneDirection():
    assert direction_faults(ROOT) == []


def version_faults(root):
    faults = []
    for folder in VERSION_FREE:
        for path in sources(root, folder):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = VERSION_CONDITION.match(line)
                if match:
                    faults.append(f"{path.relative_to(root)}:{number} depends on {match.group(1)}")
    return faults


def test_Sources_AllFoldersButCompatibility_AskForNoVersion():
    assert version_faults(ROOT) == []


def test_Sources_CoreWireFabricAndSimulation_ArePure():
    assert all(sources(ROOT, folder) for folder in PURE), "nothing to check: were the folders moved?"
    assert purity_faults(ROOT) == []


def test_Sources_TransportAndPlugin_ReadEnvironmentInOneFile():
    assert environment_faults(ROOT) == []


@pytest.mark.parametrize("folder, line, check", [
    ("transport/core", "#include <sys/socket.h>", purity_faults),
    ("transport/wire", "#include <mutex>", purity_faults),
    ("transport/core", "auto now = std::chrono::steady_clock::now();", purity_faults),
    ("transport/core", 'const char* x = getenv("X");', purity_faults),
    ("transport/core", "#include <rte_mbuf.h>", purity_faults),
    ("fabric", "#include <thread>", purity_faults),
    ("fabric", '#include "tools/fabric/mac_table.h"', direction_faults),
    ("simulation", '#include "transport/io/packet_port.h"', direction_faults),
    ("simulation", "#include <atomic>", purity_faults),
    ("transport/core", '#include "transport/io/packet_port.h"', direction_faults),
    ("transport/gloo", '#include "transport/dpdk/dpdk_port.h"', direction_faults),
    ("transport/dpdk", '#include "plugin/settings.h"', direction_faults),
    ("include/gloo_bypass", '#include "plugin/settings.h"', direction_faults),
    ("transport/dpdk", 'std::getenv("HOME");', environment_faults),
    ("compatibility/gloo", '#include "transport/gloo/device.h"', direction_faults),
    ("transport/verbs", '#include "compatibility/gloo/transport.h"', direction_faults),
    ("transport/gloo", "#if GLOO_BYPASS_GLOO_SHARED_STORE", version_faults),
    ("tests/plugin", "#ifdef GLOO_BYPASS_TORCH_LAZY_INIT", version_faults),
    ("tools", "#if GLOO_VERSION > 500", version_faults),
])
def test_Checker_FaultPlanted_IsFound(tmp_path, folder, line, check):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "planted.cc").write_text(f"// a comment\n{line}\n")
    assert check(tmp_path)


def test_Checker_WordInCommentOrString_IsIgnored(tmp_path):
    (tmp_path / "transport/core").mkdir(parents=True)
    (tmp_path / "transport/core/clean.cc").write_text('// no socket, no rand\nconst char* text = "socket";\n/* getenv\n rand */\n')
    assert purity_faults(tmp_path) == []
