"""The command line as a tree: `Command`s with their options, and the settings every command takes."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forebay import __version__
from forebay.settings import Settings, SettingsError, all_settings, read_settings


class UserError(Exception):
    """One clear sentence about what the user gave or what could not be reached. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Command:
    """One word after `forebay`, or a group of such words."""

    name: str
    summary: str
    description: str = ""
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    run: Callable[[argparse.Namespace, Settings], int] = lambda _arguments, _settings: 2
    commands: tuple["Command", ...] = ()
    #: Takes the settings (a cluster to talk to); a command that only prints does not.
    uses_settings: bool = True


def build(commands: tuple[Command, ...]) -> argparse.ArgumentParser:
    """The whole tree. The reference page in `docs/` is written from it too."""
    parser = argparse.ArgumentParser(
        prog="forebay",
        description="GPU capacity for Kubernetes: the cheapest way the budget allows, with no leak and no mystery.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    _add(parser, commands)
    return parser


def _add(parser: argparse.ArgumentParser, tree: tuple[Command, ...]) -> None:
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in tree:
        word = words.add_parser(
            command.name,
            help=command.summary,
            description=command.description or command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.commands:
            _add(word, command.commands)
            continue
        command.options(word)
        if command.uses_settings:
            _add_settings(word, command.name)
        word.set_defaults(command=command)


def _add_settings(parser: argparse.ArgumentParser, command: str) -> None:
    group = parser.add_argument_group("settings", "each is also an environment variable")
    for setting in all_settings():
        if setting.command not in {None, command}:
            continue
        default = "" if setting.default is None else f" (default: {setting.default})"
        group.add_argument(
            setting.option,
            dest=f"setting_{setting.name}",
            metavar="|".join(setting.choices) or setting.name.upper(),
            help=f"{setting.description}{default} [{setting.variable}]".replace("%", "%%"),
        )


def parse(
    commands: tuple[Command, ...], argv: Sequence[str], environment: Mapping[str, str]
) -> tuple[Command, argparse.Namespace, Settings]:
    """The command to run, its options, and the settings. Usage errors end the process with code 2, as argparse does."""
    arguments = build(commands).parse_args(argv)
    command: Command = arguments.command
    prefix = "setting_"
    options = {key.removeprefix(prefix): value for key, value in vars(arguments).items() if key.startswith(prefix)}
    try:
        settings = read_settings(options, environment) if command.uses_settings else Settings()
    except SettingsError as error:
        raise UserError(str(error)) from error
    return command, arguments, settings
