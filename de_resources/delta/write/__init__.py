"""How rows get into a table: by slice, by key, by partitions that build on each other, from a stream."""
