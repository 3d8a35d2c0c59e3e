"""Google on this machine: generateContent and streamGenerateContent of the Gemini API, and the list of models.

May import the rest of servers. Must not import `google.genai`: what it would accept is for the tests to show.
"""

from tests.servers.google.server import GoogleServer

__all__ = ["GoogleServer"]
