"""What each row of the table does: one file for each state that a row leaves, and one for each group of junctions."""
