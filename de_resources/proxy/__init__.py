"""Pattern *Proxy*: every run writes a new immutable version, and one switch shows it to readers or takes it back."""
