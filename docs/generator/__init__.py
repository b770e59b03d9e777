"""The generator of the pages in docs/ and of the picture in README.md, from the table, the policy and the presets.

It is run by `docs/generate.py` and is not installed. The drawing that `turnwise diagram` prints is in `hosts/diagrams`.
"""
