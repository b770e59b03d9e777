"""A small MCP server: it speaks the Model Context Protocol on its standard input and output, and has one tool.

`voice_loop.py` starts it. It needs the package `mcp`, which `pip install "turnwise[mcp]"` brings along.
"""

from mcp.server import MCPServer

server = MCPServer("weather", log_level="ERROR")


@server.tool()
def forecast(place: str) -> str:
    """Look up the weather of the next day at a place."""
    return f"{place}: rain from 7 PM on, 14 °C."


if __name__ == "__main__":
    server.run("stdio")
