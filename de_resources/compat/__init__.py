"""The only place that touches what Dagster, dagster-delta, deltalake and PySpark do not promise to keep.

Modules here hand on private names, and small functions over private attributes, so that an upgrade is read, mended and
tested in one folder (`tests/unit/test_compat.py` fails first). Ruff refuses such imports and attributes everywhere else.
"""
