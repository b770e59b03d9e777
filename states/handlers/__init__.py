"""What each row of the table does: one file for each state that a row leaves, and one for each group of junctions;
besides, what several states share (`awaiting_person`, `busy`, `resuming`), and what the acts of tools do (`acts`)."""
