"""Tools of MCP servers: programs that offer tools to a model over the Model Context Protocol.

What an application configures is in `server`. The official SDK, the package `mcp`, is imported when an engine with
a server opens, and never before.
"""
