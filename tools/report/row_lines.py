"""JSON of stored runs that a diff can be read of: the head indented, then each list with a line an entry."""

import json


def left_out(pairs):
    """What records.left_out_at() reads."""
    return [{"what": what, "why": why} for what, why in pairs]


def text_of(head, **lists):
    parts = [json.dumps(head, indent=1).removesuffix("\n}")]
    for name, entries in lists.items():
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        parts.append(f' "{name}": [\n{lines}\n ]')
    return ",\n".join(parts) + "\n}\n"
