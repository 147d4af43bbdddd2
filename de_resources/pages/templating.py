"""How pages are made of templates: what a page is told is text, a name that is missing is an error, the head is one for all.

A package has its templates in `templates/`; they extend `page.html`, which is here and wants `policy` and `style`.
"""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_HERE = "de_resources.pages"


def environment_of(package: str) -> Environment:
    """The environment of the templates of a package. The caller adds its own filters and globals."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_HERE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def source_of(package: str, name: str) -> str:
    """A style or a script beside the templates of a package, as it is."""
    return PackageLoader(package).get_source(Environment(autoescape=True), name)[0]
