"""Command lines: options declared as a dataclass, faults as one line, bugs as one line and a file.

A command is a dataclass of its options and a function of it. Exit status: 0 success, 1 failure with its
cause, 2 misuse with what to do instead, 130 interrupted (DESIGN section 5).
"""

import contextlib
import dataclasses
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar, cast, get_type_hints

import typer

from bootstrap.place import home_base
from swarm.errors import LocalError, MisuseError, SwarmError, UserError

INTERRUPTED: Final = 130
TRACEBACK_FILE: Final = "traceback.txt"

_Options = TypeVar("_Options")
_Value = TypeVar("_Value")
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""The option parser's base of all complaints about a command line, under any version of typer."""


class InterruptedRunError(Exception):
    """The user ended the program, and it drained."""


def parsed_by(parse: Callable[[str], _Value]) -> Callable[[str | _Value], _Value]:
    """``parse`` as a parser of an option: its MisuseError names the option, and a default passes through."""

    def convert(text: str | _Value) -> _Value:
        if not isinstance(text, str):
            return text
        try:
            return parse(text)
        except MisuseError as error:
            raise typer.BadParameter(str(error)) from None

    convert.__name__ = parse.__name__
    return convert


def make_app(about: str, *, version: Callable[[], str]) -> typer.Typer:
    """A program with commands; without one it prints its help."""
    app = typer.Typer(help=about, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    def without_command(
        context: typer.Context,
        *,
        show_version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if show_version:
            typer.echo(version())
        elif context.invoked_subcommand is None:
            typer.echo(context.get_help())

    app.callback(invoke_without_command=True)(without_command)
    return app


def single_command(name: str, options: type[_Options], act: Callable[[_Options], int | None]) -> typer.Typer:
    """A program that is one command, without sub-commands."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    add_command(app, name, options, act)
    return app


def add_command(
    app: typer.Typer, name: str, options: type[_Options], act: Callable[[_Options], int | None]
) -> None:
    """Add the command ``name``: ``options`` says what it takes, ``act`` does it and returns its exit status.

    The docstring of ``options`` is the command's help.
    """
    hints = get_type_hints(options, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cast("Any", options))}
    # What a command adds is more telling than what it shares with others: the most derived class comes first.
    order = [name for kind in options.__mro__ for name in inspect.get_annotations(kind)]
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[name],
        )
        for name, field in ((name, fields[name]) for name in order if name in fields)
    ]

    def call(**values: Any) -> None:
        status = act(options(**values))
        if status:
            raise typer.Exit(status)

    cast("Any", call).__signature__ = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # A line of \b keeps the example on the lines that it has, to be copied.
    about = (inspect.getdoc(options) or "").replace("\n\nExample:", "\n\n\b\nExample:")
    app.command(name, help=about)(call)


def run_program(app: typer.Typer, program: str, arguments: Sequence[str], *, name: str = "") -> int:
    """Run the command line and return its exit status; what a user can mend becomes one line on stderr.

    ``name`` is what users call it by, where that is more than ``program``.
    """
    # Not by calling the app: that would replace the last resort below by typer's own.
    command = typer.main.get_command(app)
    name = name or program
    return answer_for(program, lambda: command.main(list(arguments), prog_name=name, standalone_mode=False))


def answer_for(program: str, act: Callable[[], object]) -> int:
    """The exit status of ``act``; what a user can mend becomes one line of ``program`` on stderr."""
    try:
        status = act()
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort, InterruptedRunError):
        return INTERRUPTED
    except _UsageError as error:
        path = getattr(getattr(error, "ctx", None), "command_path", program)
        sentence = " ".join(error.format_message().split()).rstrip(".")
        _complain(program, f"{sentence}: see {path} --help")
        return MisuseError.exit_status
    except (SwarmError, BaseExceptionGroup) as error:
        cause = user_error(error)
        if cause is None:
            raise
        _complain(program, " ".join(str(cause).split()))
        return cause.exit_status if isinstance(cause, UserError) else 1
    return status if isinstance(status, int) else 0


def user_error(error: BaseException) -> SwarmError | None:
    """What to tell the user of ``error``, the gravest where it is a group; None where a bug is among it."""
    leaves = list(_leaves(error))
    told = [leaf for leaf in leaves if isinstance(leaf, SwarmError) and not isinstance(leaf, LocalError)]
    return next(iter(sorted(told, key=_gravity)), None) if len(told) == len(leaves) else None


def install_last_resort(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Make an unforeseen exception one line that says where its traceback is, or shows it (``--debug``)."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        summary = " ".join(traceback.format_exception_only(kind, error)[-1].split())
        if "--debug" in arguments:
            sys.stderr.write(text)
            _complain(program, f"internal error: {summary}")
        else:
            _complain(program, f"internal error: {summary}; {_kept(text, arguments, environment)}")

    sys.excepthook = report


def traceback_file(arguments: Sequence[str], environment: Mapping[str, str]) -> Path:
    """Where tracebacks of this command line go: into the home base, whether the rest of it parses or not."""
    given = None
    for place, argument in enumerate(arguments):
        if argument.startswith("--home="):
            given = argument.removeprefix("--home=")
        elif argument == "--home" and place + 1 < len(arguments):
            given = arguments[place + 1]
    given = given or environment.get("SWARM_HOME")
    return home_base(Path(given) if given else None) / TRACEBACK_FILE


def _kept(text: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    path = traceback_file(arguments, environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return "--debug shows where"
    return f"the traceback is in {path}"


def _complain(program: str, sentence: str) -> None:
    sys.stderr.write(f"{program}: {sentence}\n")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _gravity(error: SwarmError) -> int:
    """The user's own errors before those of other peers: they say what to do."""
    return 0 if isinstance(error, UserError) else 1


def start(program: str, run: Callable[[], int]) -> NoReturn:
    """What a console script calls: ``run`` with the process's arguments, and end it with the status of that.

    The interpreter is not taken apart at the end: with torch loaded that takes seconds on a busy machine, and
    a user who pressed Ctrl+C is promised five in all. Everything that has to be done has been done by then.
    """
    install_last_resort(program, sys.argv[1:], os.environ)
    # Until a node runs there is nothing to drain, and an exception would not do: imports swallow it, torch's
    # among them. A shell starts what it runs in the background deaf to interrupts; who sends one means it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    for stream in (sys.stdout, sys.stderr):
        # A label in Cyrillic must not end a command on a console that cannot show it.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    status = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a pipe whose reader has gone
            stream.flush()
    os._exit(status)
