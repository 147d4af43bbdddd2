"""Whether data is right: asset checks. Each module is a judgement; `factory` makes Dagster's checks of them. Knows no blog."""
