"""What there is: the asset graph of the blog-analytics lakehouse."""

from importlib.metadata import version

__version__ = version("de-patterns")
