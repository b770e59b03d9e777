"""The HTTP host: conversations over HTTP, with Server-Sent Events, for the page and for other clients.

Its libraries are installed with the extra `http` only. It uses the public API of the engine and knows no store.
"""
