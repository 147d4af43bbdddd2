"""What is wrong now, and who has still to be told: the states behind alerts. Knows no channel and no dataset."""
