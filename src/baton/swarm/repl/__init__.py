"""Talk to Swarm agents in a terminal. May import everything of `baton.swarm`; nothing there imports this."""

from .repl import pretty_print_messages, process_and_print_streaming_response, run_demo_loop

__all__ = ["pretty_print_messages", "process_and_print_streaming_response", "run_demo_loop"]
