"""Drives conversations: the loop, its mailbox, those who watch and wait, and the face that host programs see."""
