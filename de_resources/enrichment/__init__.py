"""Values are looked up at an API that is paid for by the value: in bulk, each once, and never again after a failure."""
