"""A model around a model: ask again, or ask another. The models are scripted: no network, no key.

python examples/agents/retry_and_failover.py
baton check examples/agents/retry_and_failover.py:agent
"""

import logging

from batonkit import Agent, FallbackModel, ModelError, RetryModel, Runner
from batonkit.log import AgentResponded
from batonkit.testing import ScriptedModel


def overloaded() -> ModelError:
    return ModelError("overloaded", retryable=True)


flaky = ScriptedModel([overloaded(), "Second time lucky."], name="flaky")
broken = ScriptedModel([lambda request: overloaded()], name="broken", cycle=True)
down = ScriptedModel([lambda request: overloaded()], name="down", cycle=True)
spare = ScriptedModel(["The spare model answers."], name="spare", cycle=True)

agent = Agent("Clerk", instructions="Answer.")


def answer_of(model: RetryModel | FallbackModel) -> str:
    result = Runner(agent, model=model).run_sync("Hello?")
    said = next(event for event in result.events if isinstance(event, AgentResponded))
    return f"{said.model}: {said.text}"


def main() -> None:
    print("scripted models: no language model is called")
    logging.basicConfig(level=logging.INFO, format="  log: %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    print("Retries")
    print(answer_of(RetryModel(flaky, attempts=3, initial_delay=0.01)))
    print("Fallback, with retries inside")
    print(answer_of(FallbackModel(RetryModel(broken, attempts=2, initial_delay=0.01), spare)))
    print("and when all fail:")
    try:
        answer_of(FallbackModel(RetryModel(broken, attempts=2, initial_delay=0.01), down))
    except ModelError as error:
        print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n  ")


if __name__ == "__main__":
    main()
