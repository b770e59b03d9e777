"""Who may call the HTTP host: tokens and session cookies, the checks of Host and Origin, and limits on bodies.

Each is an ASGI middleware, so that a refused request reaches no endpoint.
"""
