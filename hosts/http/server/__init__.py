"""The server that `turnwise serve` runs: uvicorn, with a graceful stop that open streams do not delay.

An application that mounts the HTTP host into a program of its own brings a server of its own.
"""
