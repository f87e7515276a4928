"""`forebay completion`: a script that completes commands, options and their values in bash, zsh or fish.

The script is made from the parser, so that it misses no option, and it calls nothing while you type.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from forebay.cli.parser import Command, build
from forebay.settings import Settings

#: kubectl calls a plugin by the name of its file.
PROGRAMS: Final = "forebay kubectl-forebay"


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    summary: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """What may follow a row of command words: further words, and options."""

    #: "" at the top, else such as "providers check".
    path: str
    words: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]

    @property
    def candidates(self) -> list[tuple[str, str]]:
        return [*self.words, *((name, option.summary) for option in self.options for name in option.names)]


def levels(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Level]:
    """Every command with what it accepts, the parser's own level first."""
    words: list[tuple[str, str]] = []
    options: list[Option] = []
    below: dict[str, argparse.ArgumentParser] = {}
    # argparse has no public view of what a parser accepts.
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            summaries = {each.dest: each.help for each in action._choices_actions}  # noqa: SLF001
            words.extend((name, _summary(summaries.get(name))) for name in action.choices)
            below.update(action.choices)
        elif action.option_strings:
            names = tuple(action.option_strings)
            options.append(Option(names, _summary(action.help), action.nargs != 0, _choices(action)))
        else:
            words.extend((each, "") for each in _choices(action))
    yield Level(path, tuple(words), tuple(options))
    for name, each in below.items():
        yield from levels(each, f"{path} {name}".strip())


def _choices(action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    # The choices of a setting are checked when it is read; the parser has them as what it prints.
    printed = action.metavar if isinstance(action.metavar, str) else ""
    return tuple(printed.split("|")) if "|" in printed else ()


def _summary(text: str | None) -> str:
    """The first sentence, without what a shell or zsh's `_describe` would interpret."""
    sentence = " ".join((text or "").split()).split(". ")[0].split(" [FOREBAY_")[0].rstrip(".")
    return "".join(each for each in sentence.replace("'", "\u2019") if each not in '"`$\\[]%')


def bash(tree: Iterable[Level]) -> str:
    tree = tuple(tree)
    cases = [(level.path, " ".join(name for name, _ in level.candidates)) for level in tree]
    return f"""# bash completion of forebay, for this shell: source <(forebay completion bash)
_forebay() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} at="" candidates="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
            {_paths(tree)}) at="${{at:+$at }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$at|$previous" in
{_lines(f"{names}) candidates={_quoted(' '.join(choices))} ;;" for names, choices in _valued(tree))}
        *) case "$at" in
{_lines(f"{_quoted(path)}) candidates={_quoted(words)} ;;" for path, words in cases)}
        esac ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$current")
    ((${{#COMPREPLY[@]}})) || compopt -o default 2>/dev/null || true
}}
complete -F _forebay {PROGRAMS}
"""


def zsh(tree: Iterable[Level]) -> str:
    tree = tuple(tree)
    cases = [
        (level.path, " ".join(_quoted(f"{name}:{summary}" if summary else name) for name, summary in level.candidates))
        for level in tree
    ]
    return f"""#compdef {PROGRAMS}
# zsh completion of forebay, for this shell: source <(forebay completion zsh)
_forebay() {{
    local previous=${{words[CURRENT - 1]}} at="" i
    local -a candidates
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${{words[i]}}" in
            {_paths(tree)}) at="${{at:+$at }}${{words[i]}}" ;;
        esac
    done
    case "$at|$previous" in
{_lines(f"{names}) candidates=({' '.join(map(_quoted, choices))}) ;;" for names, choices in _valued(tree))}
        *) case "$at" in
{_lines(f"{_quoted(path)}) candidates=({words}) ;;" for path, words in cases)}
        esac ;;
    esac
    ((${{#candidates}})) && _describe forebay candidates || _files
}}
if [[ "${{funcstack[1]}}" = _forebay ]]; then _forebay "$@"; else compdef _forebay {PROGRAMS}; fi
"""


def fish(tree: Iterable[Level]) -> str:
    tree = tuple(tree)
    lines: list[str] = []
    for level in tree:
        at = f"complete -c forebay -n '__forebay_at \"{level.path}\"'"
        lines.extend(f"{at} -f -a {word} -d '{summary}'" for word, summary in level.words)
        for option in level.options:
            flags = " ".join(f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}" for each in option.names)
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.takes_value else ""
            lines.append(f"{at} {flags}{value} -d '{option.summary}'")
    paths = " ".join(f"'{level.path}'" for level in tree if level.path)
    return f"""# fish completion of forebay, for this shell: forebay completion fish | source
function __forebay_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        set -l longer (string trim -- "$at $word")
        contains -- $longer {paths}; and set at $longer
    end
    test "$at" = "$argv[1]"
end
{chr(10).join(lines)}
complete -c kubectl-forebay -w forebay
"""


def _paths(tree: Iterable[Level]) -> str:
    """Alternatives of a shell's `case`: the words so far, a space, and the next word."""
    parted = (level.path.rpartition(" ") for level in tree if level.path)
    return " | ".join(_quoted(f"{before} {word}") for before, _, word in parted)


def _valued(tree: Iterable[Level]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For every option with a value: the alternatives of a `case`, and the values there are; none stands for files."""
    for level in tree:
        for option in level.options:
            if option.takes_value:
                yield " | ".join(_quoted(f"{level.path}|{name}") for name in option.names), option.choices


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)


def _quoted(text: str) -> str:
    return f"'{text}'"


SHELLS: Final = {"bash": bash, "zsh": zsh, "fish": fish}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that reads the script")


def run(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.cli.commands import COMMANDS

    sys.stdout.write(SHELLS[arguments.shell](levels(build(COMMANDS))))
    return 0


COMMAND = Command(
    name="completion",
    summary="a script that completes forebay's commands and options in your shell",
    description="Print a script that completes forebay's commands, options and values. For the shell you are in:\n\n"
    "  source <(forebay completion bash)\n"
    "  source <(forebay completion zsh)\n"
    "  forebay completion fish | source\n\n"
    "To have it in every shell, put that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.",
    options=add_options,
    run=run,
    uses_settings=False,
)
