"""One agent, one question. The model is scripted: no network, no key.

python examples/first_steps/one_agent.py
baton check examples/first_steps/one_agent.py:agent
baton run examples/first_steps/one_agent.py:agent "What can you do?"
"""

from batonkit import Agent, Runner
from batonkit.testing import scripted_or_real

# A language model would read the instructions and the question; this one plays its only step again and again.
model = scripted_or_real(["I answer questions about your order, in one sentence."], cycle=True)

agent = Agent(
    "Guide",
    description="Says what this shop can do for you.",
    instructions="Answer in one sentence.",
    model=model,
)


def main() -> None:
    print(model.notice)
    result = Runner(agent).run_sync("What can you do?")
    print(f"{result.agent}: {result.output}")
    print(f"{result.status} after {result.usage.total.model_calls} model call")


if __name__ == "__main__":
    main()
