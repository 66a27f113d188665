"""A picture of a study's page, in both of the report's themes. Pure."""

from dataclasses import dataclass

from gloo_bypass_tools.report import page, plots


@dataclass(frozen=True)
class Picture:
    """`section` of the page; `name`: of the file, without .png; `alt`: for those who cannot see it. PNGs."""

    section: str
    name: str
    alt: str
    light: bytes
    dark: bytes

    def as_shown(self):
        """What the template needs."""
        return {"light": page.data_uri(self.light), "dark": page.data_uri(self.dark), "alt": self.alt}


def in_both(section, name, alt, draw):
    """`draw(theme)` gives a PNG, or None where there is nothing to draw; then there is no picture."""
    light = draw(plots.LIGHT)
    return None if light is None else Picture(section, name, alt, light, draw(plots.DARK))


def write(folder, pictures):
    for one in pictures:
        folder.write_bytes(f"plots/{one.name}.png", one.light)
