"""Lines that were not understood: listed, decided about, replayed."""
