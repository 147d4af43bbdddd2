"""How data is stored and reached: the engine, Delta tables, the broker, the database. Knows no blog."""
