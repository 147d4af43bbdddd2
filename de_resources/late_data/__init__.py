"""Dynamic Late Data Integrator: which past partitions changed since they were processed, and who processes them again."""
