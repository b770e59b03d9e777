"""The web page: files for a browser, which are a client of the HTTP host and of nothing else.

The files in static/ are served as they are: there is no build step.
"""
