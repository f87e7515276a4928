"""The tree of `Command`s with their options, and the settings that commands share."""

import argparse
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from forebay import __version__
from forebay.cli.watching import add_watch_option
from forebay.settings import Settings, SettingsError, all_settings, read_settings

_COMMAND: Final = "COMMAND"
#: From 0 to 1: how much an option must resemble the one that was written.
_LIKE: Final = 0.75
_REQUIRED: Final = "the following arguments are required: "
#: Argparse's own words, with and without quotes around the choices.
_INTEGER: Final = re.compile(r"invalid int value: ('.*')", re.DOTALL)
_CHOICE: Final = re.compile(r"argument ([^ :]+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


class UserError(Exception):
    """Bad input, or a cluster that cannot be reached, in one sentence. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `forebay`, or a group of commands."""

    name: str
    summary: str
    description: str = ""
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    run: Callable[[argparse.Namespace, Settings], int] = lambda _arguments, _settings: 2
    commands: tuple["Command", ...] = ()
    #: Whether the command takes the settings. Commands that need no cluster do not.
    uses_settings: bool = True
    #: Raises `SettingsError` for settings that mean nothing to the command.
    check: Callable[[Settings], None] = lambda _: None
    #: Whether `--watch` shows its output again and again.
    watchable: bool = False


def namespace_and_name(text: str, namespace: str | None) -> tuple[str | None, str]:
    """Both of `NAMESPACE/NAME`, which is how tables write an object; of `NAME` alone, with the namespace of -n."""
    before, slash, name = text.partition("/")
    if not slash:
        return namespace, text
    if not before or not name or "/" in name:
        raise UserError(f"{text!r} is neither NAME nor NAMESPACE/NAME")
    if namespace not in {None, before}:
        raise UserError(f"{text!r} is in namespace {before!r}, and -n says {namespace!r}; give one of them")
    return before, name


class _Parser(argparse.ArgumentParser):
    """Says what is wrong and where to read on, instead of all options."""

    def error(self, message: str) -> NoReturn:
        message = _INTEGER.sub(r"\1 is not a whole number", message.replace(_REQUIRED, "give ", 1))
        chosen = _CHOICE.search(message)
        if chosen is not None:
            possible = [each.strip(" '\"") for each in chosen[3].split(",")]
            near = difflib.get_close_matches(chosen[2], possible, 1)
            said = f"there is no command {chosen[2]!r}" if chosen[1] == _COMMAND else f"{chosen[1]} is {chosen[2]!r}"
            message = f"{said}; " + (f"did you mean {near[0]}?" if near else f"give one of {', '.join(possible)}")
        self.exit(2, f"{self.prog}: {message}\nOptions and examples: {self.prog} --help\n")


def build(commands: tuple[Command, ...]) -> argparse.ArgumentParser:
    """The parser of all commands. The reference page in `docs/` is generated from it too."""
    parser = _Parser(
        prog="forebay",
        description="GPU capacity for Kubernetes at the lowest price the budget allows: no machine is billed "
        "unnoticed, and no pod waits without a reason.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    _add(parser, commands)
    return parser


def _add(parser: argparse.ArgumentParser, tree: tuple[Command, ...]) -> None:
    subparsers = parser.add_subparsers(title="commands", metavar=_COMMAND)
    parser.set_defaults(command=None, parser=parser)
    for command in tree:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.description or command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.commands:
            _add(subparser, command.commands)
            continue
        command.options(subparser)
        if command.watchable:
            add_watch_option(subparser)
        if command.uses_settings:
            _add_settings(subparser, command.name)
        subparser.set_defaults(command=command, parser=subparser)


def _add_settings(parser: argparse.ArgumentParser, command: str) -> None:
    group = parser.add_argument_group("settings", "each can also be given as the environment variable in brackets")
    for setting in all_settings():
        if setting.command not in {None, command}:
            continue
        default = "" if setting.default is None else f" (default: {setting.default})"
        group.add_argument(
            setting.option,
            dest=f"setting_{setting.name}",
            metavar="|".join(setting.choices) or setting.name.upper(),
            nargs=None if setting.without_value is None else "?",
            const=setting.without_value,
            help=f"{setting.description}{default} [{setting.variable}]".replace("%", "%%"),
        )


def parse(
    commands: tuple[Command, ...], argv: Sequence[str], environment: Mapping[str, str]
) -> tuple[Command, argparse.Namespace, Settings]:
    """The command to run, its options and its settings. On a usage error argparse ends the process with code 2."""
    arguments, unknown = build(commands).parse_known_args(argv)
    command: Command | None = arguments.command
    if unknown:
        # By the parser of the command, which knows where to read on.
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}{_nearest(arguments.parser, unknown[0])}")
    if command is None:
        # Whoever names no command asks what there is.
        arguments.parser.print_help()
        raise SystemExit(0)
    prefix = "setting_"
    options = {key.removeprefix(prefix): value for key, value in vars(arguments).items() if key.startswith(prefix)}
    try:
        settings = read_settings(options, environment) if command.uses_settings else Settings()
        command.check(settings)
    except SettingsError as error:
        raise UserError(_all_problems(error, command)) from error
    return command, arguments, settings


def _nearest(parser: argparse.ArgumentParser, unknown: str) -> str:
    """Asks whether an option was meant that is written almost like the unknown one."""
    known = parser.format_help()
    near = difflib.get_close_matches(unknown.partition("=")[0], re.findall(r"--[a-z-]+", known), 1, _LIKE)
    return f"; did you mean {near[0]}?" if near and unknown.startswith("--") else ""


def _all_problems(error: SettingsError, command: Command) -> str:
    """Also those of the other settings: whoever mends the first would only meet the next."""
    try:
        if error.others is not None:
            command.check(error.others)
    except SettingsError as more:
        return f"{error} {more}"
    return str(error)
