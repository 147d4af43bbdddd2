"""What makes it safe to compute again: keys and histories that do not depend on the run."""
