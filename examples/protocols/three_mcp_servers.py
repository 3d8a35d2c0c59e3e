"""A team with three MCP servers that other people wrote, each a process. The model is scripted: no key.

Needs git, node, and: pip install mcp-server-time mcp-server-git

python examples/protocols/three_mcp_servers.py
baton check examples/protocols/three_mcp_servers.py:clock
"""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from tempfile import TemporaryDirectory

from batonkit import Agent, Runner
from batonkit.errors import ToolsUnavailableError
from batonkit.log import ToolReturned
from batonkit.mcp import MCPToolset
from batonkit.testing import call, scripted_or_real

place = (folder := TemporaryDirectory()).name
identity = {f"GIT_{who}_{what}": "ada@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

# A server gets of your environment only what `env` says, and the likes of PATH and HOME.
time = MCPToolset([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], prefix="time")
files = MCPToolset(["npx", "-y", "@modelcontextprotocol/server-filesystem", place], prefix="files", connect_timeout=120)
git = MCPToolset([sys.executable, "-m", "mcp_server_git", "--repository", place], prefix="git", env=identity)

archivist = Agent("Archivist", description="Commits files.", tools=[git])
writer = Agent("Writer", description="Writes notes.", tools=[files], handoffs=[archivist])
clock = Agent("Clock", description="Knows what time it is elsewhere.", tools=[time], handoffs=[writer])
noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
note = {"path": f"{place}/note.txt", "content": "The call is at 21:00 in Tokyo.\n"}
stage = call("git_git_add", repo_path=place, files=["note.txt"])
commit = call("git_git_commit", repo_path=place, message="Say when the call is")
model = scripted_or_real(
    {
        "Clock": [call("time_convert_time", **noon), call("transfer_to_writer")],
        "Writer": [call("files_write_file", **note), call("transfer_to_archivist")],
        "Archivist": [stage, commit, "The note is written and committed."],
    }
)

if __name__ == "__main__":
    print(model.notice)
    needed = {"git": shutil.which("git"), "node": shutil.which("npx")}
    needed |= {f"mcp-server-{name}": find_spec(f"mcp_server_{name}") for name in ("time", "git")}
    if missing := [name for name, found in needed.items() if not found]:
        sys.exit(f"this example needs {', '.join(missing)}")
    subprocess.run(["git", "init", "-q", place], check=True)
    try:
        result = Runner(clock, model=model).run_sync("Note down when the call at noon UTC is in Tokyo.")
    except ToolsUnavailableError as error:
        sys.exit(f"this example needs {error.source}: {error.reason}")
    for event in result.events:
        if isinstance(event, ToolReturned):
            print(f"{event.agent}: {event.tool_name}{' failed' if event.is_error else ''}")
    print(f"{result.agent}: {result.output}")
    log = ["git", "-C", place, "log", "--format=in the log of git: %s"]
    print(subprocess.run(log, capture_output=True, text=True, check=False).stdout, end="")
