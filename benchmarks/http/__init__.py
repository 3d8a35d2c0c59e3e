"""What a tool loop costs over HTTP: Baton's own wire, the official client and bare aiohttp, before one local server."""
