"""How data gets in: what a source tells becomes rows."""
