"""What there is: the asset graph of the blog-analytics lakehouse."""


def __getattr__(name: str) -> str:
    """`__version__`, looked up when somebody asks: reading the package's metadata takes longer than the rest of a start."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import version

    return version("de-patterns")
