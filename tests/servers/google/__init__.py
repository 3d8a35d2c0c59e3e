"""A local server with the Gemini API's generateContent, streamGenerateContent and list of models.

May import the rest of servers. Must not import `google.genai`: the tests compare the server with it.
"""

from tests.servers.google.server import GoogleServer

__all__ = ["GoogleServer"]
