"""What a check has found."""

from dataclasses import asdict, dataclass

OK, WARNING, MISSING = "ok", "warning", "missing"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `state` is OK, WARNING (it works, but slower or not for every use) or MISSING (it cannot
    work)."""

    name: str
    state: str
    found: str
    why: str = ""  # why it matters; for WARNING and MISSING
    mend: tuple = ()  # commands for a shell on Debian, or lines of advice that begin with '#'

    def as_dict(self):
        return {**asdict(self), "mend": list(self.mend)}


@dataclass(frozen=True)
class Subject:
    """What a check looks at; its methods are the findings about it."""

    name: str

    def ok(self, found):
        return Finding(self.name, OK, found)

    def warning(self, found, why, *mend):
        return Finding(self.name, WARNING, found, why, mend)

    def missing(self, found, why, *mend):
        return Finding(self.name, MISSING, found, why, mend)


def install(packages):
    """A command that mends a finding."""
    return f"sudo apt-get install {packages}"
