"""The tools of an MCP server, for one agent of a team. The model is scripted: no network, no key.

python examples/protocols/mcp_tools.py
baton check examples/protocols/mcp_tools.py:desk
baton mcp examples/protocols/mcp_tools.py:desk
"""

from mcp.server.mcpserver import MCPServer as Server
from mcp.server.mcpserver.exceptions import ToolError

from batonkit import Agent, Runner
from batonkit.log import ToolReturned
from batonkit.mcp import MCPToolset
from batonkit.testing import call, scripted_or_real

warehouse = Server("warehouse", log_level="WARNING")


@warehouse.tool()
async def stock(item: str) -> int:
    """Count the pieces in stock."""
    return {"lamp": 3}.get(item, 0)


@warehouse.tool()
async def reserve(item: str, pieces: int) -> str:
    """Put pieces aside."""
    if pieces > await stock(item):
        raise ToolError(f"there are only {await stock(item)} of {item}")
    return f"{pieces} {item} reserved"


# A server in this process. Usually it is a command or a URL:
#   MCPToolset("uvx mcp-server-time", prefix="clock"), MCPToolset("https://example.org/mcp", headers={…})
source = MCPToolset(warehouse, prefix="warehouse")

sales = Agent("Sales", description="Sells lamps.", instructions="Reserve what is wanted.", tools=[source])
desk = Agent("Desk", description="Finds who can help.", instructions="Find who can help.", handoffs=[sales])
model = scripted_or_real(
    {
        "Desk": [call("transfer_to_sales")],
        "Sales": [
            call("warehouse_reserve", item="lamp", pieces=5),
            call("warehouse_stock", item="lamp"),
            call("warehouse_reserve", item="lamp", pieces=3),
            "Three lamps are yours; there are no more.",
        ],
    }
)
runner = Runner(desk, model=model)

if __name__ == "__main__":
    print(model.notice)
    result = runner.run_sync("Five lamps, please.")
    for event in result.events:
        if isinstance(event, ToolReturned) and not event.requested_agent:
            print(f"{event.tool_name}{' failed' if event.is_error else ''}: {event.content}")
    print(f"{result.agent}: {result.output}")
