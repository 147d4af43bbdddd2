"""The only place that touches what Dagster and dagster-delta do not promise to keep.

Modules here hand on private names and nothing else, so that an upgrade is read, mended and tested in one folder
(`tests/unit/test_compat.py` fails first). Ruff refuses such imports everywhere else.
"""
