"""Reading a table on behalf of an input."""
