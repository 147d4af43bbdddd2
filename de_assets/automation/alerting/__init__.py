"""What people are told, and where."""
