"""What the tool for an agent is called: valid for every provider, and different for different agents."""

import re
import unicodedata
from hashlib import blake2s

_LONGEST = 64
_PREFIX = "transfer_to_"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def default_tool_name(agent_name: str) -> str:
    """The name of the tool for a handoff: `transfer_to_` and the agent's name."""
    return tool_name_for(agent_name, prefix=_PREFIX)


def tool_name_for(agent_name: str, *, prefix: str = "") -> str:
    """The agent's name in letters a provider accepts.

    Where letters had to be dropped or the name is too long, a short hash keeps different names different.
    """
    spaced = re.sub(r"\s+", "_", agent_name.strip())
    plain = unicodedata.normalize("NFKD", spaced)
    base_letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    kept = _FORBIDDEN.sub("", base_letters)
    name = prefix + kept.lower()
    lost_something = len(kept) != len(base_letters)
    if not lost_something and len(name) <= _LONGEST:
        return name
    mark = blake2s(agent_name.encode(), digest_size=4).hexdigest()
    return f"{name[: _LONGEST - 9].rstrip('_-')}_{mark}".lstrip("_")
