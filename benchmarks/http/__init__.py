"""The cost of a tool loop over HTTP: Baton's client, the official client and bare aiohttp, with one local server."""
