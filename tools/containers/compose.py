"""Compose files made from the recipes: what scripts/run-containers does for one run, as a file for docker compose or
podman-compose."""

from gloo_bypass_tools.containers.recipes import MASTER_PORT, RESULTS_DIRECTORY, SHARED_DIRECTORY

HEADER = """\
# {summary}. {ranks} ranks.
# Written by scripts/run-containers --transport {transport} --ranks {ranks} --compose; for other numbers of ranks, run \
that.
#
#   scripts/run-containers --build                  makes the image
#   docker compose -f FILE up --abort-on-container-exit      or podman-compose
#   TRAINER_ARGUMENTS='--model tiny --steps 100' docker compose -f FILE up ...

# Files without a name of their own are one project, in which the second one ends the first one's ranks.
name: gloo-bypass-{project}

x-rank: &rank
  image: ${{RANK_IMAGE:-gloo-bypass-rank}}
  command: ddp_train ${{TRAINER_ARGUMENTS:---model tiny --steps 20}}
  # Nothing that a process of its own network would not have, but for what is explained below.
  cap_drop: [ALL]
  security_opt: ["no-new-privileges"]
  read_only: true
  tmpfs: ["/tmp:rw,mode=1777"]
"""


def reason_of(grant):
    return grant.reason[0].upper() + grant.reason[1:]


def commented(grant, line):
    return [f"  # {reason_of(grant)}", f"  {line}"]


def rank_options(recipe):
    """The lines that the transport adds to x-rank, each under its reason."""
    lines = []
    capabilities = [grant for grant in recipe.grants if grant.kind == "capability"]
    if capabilities:
        lines += ["  cap_add:"] + [
            line for grant in capabilities for line in (f"    # {reason_of(grant)}", f"    - {grant.value}")
        ]
    for grant in recipe.grants:
        if grant.kind == "user":
            lines += commented(grant, f'user: "{grant.value}:{grant.value}"')
        elif grant.kind == "network":
            lines += commented(grant, f"network_mode: {grant.value}")
        elif grant.kind == "device":
            lines += commented(grant, f'devices: ["{grant.value}"]')
        elif grant.kind == "limit":
            name, _, values = grant.value.partition("=")
            soft, _, hard = values.partition(":")
            lines += [f"  # {reason_of(grant)}", "  ulimits:", f"    {name}: {{soft: {soft}, hard: {hard}}}"]
        elif grant.kind == "syscall":  # there is no profile at hand
            lines += [
                f"  # {reason_of(grant)}:",
                f"  # to allow {grant.value}, add seccomp=FILE to security_opt; run-containers leaves one "
                "beside its logs",
            ]
    lines += ["  volumes:", f'    - "results:{RESULTS_DIRECTORY}"']
    for grant in recipe.grants:
        if grant.kind == "volume":
            lines += [f"    # {reason_of(grant)}", f'    - "{grant.value}:{SHARED_DIRECTORY}"']
    return lines


def service(recipe, ranks, number):
    master = "127.0.0.1" if recipe.host_network else "rank0"
    variables = {
        "RANK": number,
        "WORLD_SIZE": ranks,
        "MASTER_ADDR": master,
        "MASTER_PORT": MASTER_PORT,
        "OMP_NUM_THREADS": "${OMP_NUM_THREADS:-1}",
        **recipe.environment,
    }
    lines = [f"  rank{number}:", "    <<: *rank"]
    if not recipe.host_network:
        lines.append(f"    hostname: rank{number}")
    return lines + ["    environment:", *(f'      {name}: "{value}"' for name, value in variables.items())]


def compose_file(recipe, ranks):
    lines = rank_options(recipe) + ["", "services:"]
    for number in range(ranks):
        lines += service(recipe, ranks, number)
    lines += ["", "volumes:", "  results: {}"] + (["  memif: {}"] if recipe.shares_memif else [])
    words = {
        "summary": recipe.summary,
        "transport": recipe.transport,
        "project": recipe.transport.lower(),
        "ranks": ranks,
    }
    return HEADER.format(**words) + "\n".join(lines) + "\n"
