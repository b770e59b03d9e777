"""The texts that may be found again: an index that follows the logs, and the SQL that searches it.

Nothing here is written with a step. What follows from a log is added later, in a transaction of its own, and can be
written again at any time.
"""
