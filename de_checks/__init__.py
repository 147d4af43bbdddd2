"""Whether data is right: factories of asset checks. Knows no blog."""
