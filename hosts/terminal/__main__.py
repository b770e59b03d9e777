"""Runs the command `turnwise` where its script is not installed: `python -m turnwise.hosts.terminal`."""

from . import main

main()
