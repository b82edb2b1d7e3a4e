"""A real MCP server over stdio, with the tool that the model can use."""

from mcp.server import MCPServer

server = MCPServer("weather")


@server.tool()
def get_weather(city: str) -> str:
    """Get the current weather for a city"""
    return f"18C and sunny in {city}"


server.run()
