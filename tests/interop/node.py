"""Official clients that are node programs: fetched with npm, and set talking with a server of ours."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

HERE = Path(__file__).parent


def talked(server: AbstractAsyncContextManager[str], script: str, *, client: str) -> int:
    """Have a script talk with a server, whose address it is given, by means of a client from npm; the exit code."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("node and npm are not here, so the official client cannot be asked", file=sys.stderr)
        return 1
    return asyncio.run(_talk(server, node, _fetched(npm, script, client)))


def _fetched(npm: str, script: str, client: str) -> Path:
    """The script, beside the client it imports."""
    room = HERE.parents[1] / ".venv" / Path(script).stem.replace("_", "-")
    if not (room / "node_modules").is_dir():
        room.mkdir(parents=True, exist_ok=True)
        subprocess.run([npm, "install", "--silent", "--no-save", "--prefix", str(room), client], check=True, cwd=room)
    return Path(shutil.copy(HERE / script, room))


async def _talk(server: AbstractAsyncContextManager[str], node: str, script: Path) -> int:
    async with server as url:
        talking = await asyncio.create_subprocess_exec(node, str(script), url)
        return await talking.wait()
