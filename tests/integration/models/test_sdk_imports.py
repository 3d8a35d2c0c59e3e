"""The first request of a model does not load its SDK in the thread of the event loop, which would block all runs."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys, threading
from batonkit.errors import ModelError
from batonkit.messages import UserMessage
from batonkit.models import ModelRequest, ModelSettings, collect_response
{imports}

class Watch:
    modules = []

    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            self.modules.append(name)

async def main():
    model = {model}
    sys.meta_path.insert(0, Watch())
    request = ModelRequest([UserMessage("Hello")], settings=ModelSettings(max_retries=0))
    try:
        await collect_response(model.respond(request))
    except ModelError:
        pass

asyncio.run(main())
print(json.dumps(Watch.modules))
"""
NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("imports", "model", "package"),
    [
        (
            "from batonkit.models.openai import OpenAIModel",
            f"OpenAIModel('gpt-5', base_url='{NOWHERE}/v1', api_key='key')",
            "aiohttp",
        ),
        (
            "from batonkit.models.openai import OpenAIModel; from openai import AsyncOpenAI",
            f"OpenAIModel('gpt-5', client=AsyncOpenAI(base_url='{NOWHERE}/v1', api_key='key'))",
            "openai",
        ),
        (
            "from batonkit.models.anthropic import AnthropicModel",
            f"AnthropicModel('claude-sonnet-5', base_url='{NOWHERE}', api_key='key')",
            "anthropic",
        ),
        (
            "from batonkit.models.google import GoogleModel",
            f"GoogleModel('gemini-3-flash', base_url='{NOWHERE}', api_key='key')",
            "google.genai",
        ),
    ],
    ids=["openai", "openai-sdk", "anthropic", "google"],
)
def test_an_sdk_is_loaded_outside_the_event_loop(imports: str, model: str, package: str) -> None:
    program = PROGRAM.format(imports=imports, model=model)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in loaded if f"{name}.".startswith(f"{package}.")] == []
