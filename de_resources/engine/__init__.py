"""What is asked of a Spark engine beyond its frames: errors told alike by every kind of session, exact counts, whole times."""
