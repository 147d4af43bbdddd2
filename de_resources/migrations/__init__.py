"""Breaking changes of a table's columns, in phases in which old and new readers and writers work: pattern *Schema Migrator*."""

from de_resources.migrations.migration import Migration, nest, remove, rename, retype

__all__ = ["Migration", "nest", "remove", "rename", "retype"]
