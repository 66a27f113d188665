"""Every study, as the files of studies/ beside this one have it. Pure."""

import importlib
import pkgutil

from gloo_bypass_tools.study import studies


def found():
    """By name, in the order that the studies give themselves."""
    listed = []
    for file in pkgutil.iter_modules(studies.__path__):
        listed += importlib.import_module(f"{studies.__name__}.{file.name}").STUDIES
    return {one.name: one for one in sorted(listed, key=lambda one: one.order)}


STUDIES = found()
