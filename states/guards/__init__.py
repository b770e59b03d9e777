"""The questions that the table asks, each answered with yes or no.

Read their names after "when". A guard decides nothing else and changes nothing: what a row does is in `handlers`.
"""
