"""The `baton` command: a group that loads each command from its module when it is called."""

import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from .._wording import nearest, printable
from ..version import __version__
from .cli_options import debug
from .env_file import add_env_file, env_file_option

COMMANDS = {
    "chat": "Talk with a team in the terminal.",
    "check": "Show a team as a tree, with likely mistakes and costs.",
    "completion": "Print a script that makes a shell complete commands and options.",
    "demo": "Watch a support desk hand over, ask, crash and carry on; needs no API key.",
    "graph": "Draw a team as a Mermaid or Graphviz graph.",
    "init": "Write a small project: a team and its tests.",
    "mcp": "Serve a team to MCP clients.",
    "models": "Download, list and remove the weights of embedded models.",
    "queue": "Show, pause and resume the queue of the workers on a PostgreSQL store.",
    "run": "Run a team once and print its answer.",
    "runs": "List, show, resume, retry, fork and remove stored runs.",
    "serve": "Serve a team over HTTP.",
    "skill": "Print what coding assistants should know about Baton, or add it to a project.",
    "studio": "Open a local web page that shows runs, and reruns them.",
    "voice": "Hold a live conversation with a team of RealtimeAgents.",
    "worker": "Drive the stored runs of a team.",
}
"""Commands and their short help. Each is the function `<name>_command` of the module `batonkit.cli.<name>`."""


class LazyGroup(click.Group):
    """A group that imports commands on demand and turns errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command from its module."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f".{cmd_name}", __package__), f"{cmd_name}_command")
        return add_env_file(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; suggest the nearest one if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = nearest(args[0], COMMANDS)
            raise click.UsageError(f"{error.message.rstrip('.')}{hint}", ctx) if hint else error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[Any]]":
        """Complete the names of commands without importing them."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command, and exit with the code that it returns."""
        from .cli_errors import CANCELLED, exit_code_for, print_error, warnings_on_stderr

        with warnings_on_stderr(ctx.meta):
            try:
                code = super().invoke(ctx) or 0
            except click.ClickException as error:
                vars(error)["message"] = printable(error.message)
                raise
            except (click.Abort, click.exceptions.Exit, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                code = CANCELLED
            except Exception as error:  # noqa: BLE001 - the edge of the program: errors become messages
                print_error(error)
                code = exit_code_for(error)
        ctx.exit(code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="baton")
@debug
def main() -> None:
    """Run and inspect teams of agents that hand control to one another.

    MODULE:AGENT names an Agent, a Runner, or a function without parameters that returns one. MODULE is a module
    or a file; :AGENT can be left out if the module has only one candidate.

    \b
    Examples:
      baton run examples/first_steps/one_agent.py:agent "What can you do?"
      baton chat desk:router --model openai:gpt-5
      baton voice desk:triage --model openai:gpt-realtime
      baton check desk
      baton graph desk:router -o team.mmd
      baton demo
      baton init desk
      baton runs ls --store runs.db
      baton mcp desk:router
      baton worker desk:runner --store runs.db
      baton studio desk:router --store runs.db
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A character that the terminal cannot show must not end the program.
            reconfigure(errors="replace")


main.params.append(env_file_option())
