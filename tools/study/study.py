"""What every study says of itself. Pure."""

from dataclasses import dataclass


def words(text):
    """A block of text, whose line ends are spaces."""
    return " ".join(text.split())


@dataclass(frozen=True, kw_only=True)
class Study:
    """`order`: its place in lists. `title`, `about`: its words. `variants`: its points, each with a name of its own."""

    name: str
    order: int
    title: str
    about: str
    variants: tuple

    def __post_init__(self):
        object.__setattr__(self, "about", words(self.about))

    def variant(self, name):
        return next(one for one in self.variants if one.name == name)
