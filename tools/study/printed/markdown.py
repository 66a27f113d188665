"""Tables in Markdown. Pure."""


def line(cells):
    return "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells)


def table(header, rows, left=0):
    """The first `left` columns to the left, others to the right."""
    dashes = ["---" if column < left else "---:" for column in range(len(header))]
    return "\n".join(map(line, [header, dashes, *rows]))
