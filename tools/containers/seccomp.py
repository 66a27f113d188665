"""The engine's own seccomp profile with a few more system calls allowed."""

import json
from pathlib import Path

# Where the packages of podman and of other engines put the profile that they apply to every container. docker has its
# own compiled in, and takes this one as well: the format is one.
DEFAULT_PROFILES = (Path("/etc/containers/seccomp.json"), Path("/usr/share/containers/seccomp.json"))

# userfaultfd(2) for faults of user mode only (bit 0). Since Linux 5.11 any process may use that.
RULES = {
    "userfaultfd": {
        "action": "SCMP_ACT_ALLOW",
        "includes": {},
        "excludes": {},
        "args": [{"index": 0, "value": 1, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"}],
    }
}


def extended(profile, calls):
    """`profile` with RULES of these calls in place of what it says about them."""
    rules = [{**rule, "names": [name for name in rule["names"] if name not in calls]} for rule in profile["syscalls"]]
    return {
        **profile,
        "syscalls": [rule for rule in rules if rule["names"]] + [{"names": [call], **RULES[call]} for call in calls],
    }


def write_profile(calls, path, defaults=DEFAULT_PROFILES):
    """Writes the extended profile; False, and nothing, where there is no default profile to start from."""
    for default in defaults:
        if default.is_file():
            path.write_text(json.dumps(extended(json.loads(default.read_text()), calls), indent=1) + "\n")
            return True
    return False
