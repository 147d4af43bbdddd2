"""Programs that are measured from start to end, each in a process of its own."""
