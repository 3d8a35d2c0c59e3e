"""A terminal chat with Swarm agents. It may import all of `batonkit.swarm`, which does not import it."""

from .repl import pretty_print_messages, process_and_print_streaming_response, run_demo_loop

__all__ = ["pretty_print_messages", "process_and_print_streaming_response", "run_demo_loop"]
