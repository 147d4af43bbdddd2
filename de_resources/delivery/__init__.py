"""Records on their way to somebody else: planned once, sent in the order of their keys, and remembered with their receipts."""
