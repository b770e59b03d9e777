"""Runs the command `turnwise` where its script is not on the PATH: `python -m turnwise`."""

from .hosts.terminal import main

main()
