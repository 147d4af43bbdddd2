"""Pure functions `DataFrame -> DataFrame`, one module per pattern. No orchestration, no storage, no counting."""
