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


def ok(name, found):
    return Finding(name, OK, found)


def warning(name, found, why, *mend):
    return Finding(name, WARNING, found, why, mend)


def missing(name, found, why, *mend):
    return Finding(name, MISSING, found, why, mend)
