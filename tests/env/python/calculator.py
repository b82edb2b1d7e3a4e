"""A real MCP server over streamable HTTP, in both protocol eras."""

import sys

from mcp.server import MCPServer

server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
