"""`python -m turnwise.hosts.terminal` is the command `turnwise`, where no script is installed."""

from . import main

main()
