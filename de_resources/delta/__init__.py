"""Delta tables: typed slices, writers, the log reader and the IO managers built on them."""
