"""``shmarrow completion``: what a shell needs to complete commands, options and paths, made by shtab."""

from __future__ import annotations

import argparse

from shmarrow.cli.report import reporting
from shmarrow.optional import optional

SHELLS = ("bash", "zsh", "fish", "tcsh")
_HOW = """\
to install it:
  bash  mkdir -p ~/.local/share/bash-completion/completions
        shmarrow completion bash > ~/.local/share/bash-completion/completions/shmarrow
  zsh   mkdir -p ~/.zfunc                              (a directory of fpath)
        shmarrow completion zsh > ~/.zfunc/_shmarrow
  fish  shmarrow completion fish > ~/.config/fish/completions/shmarrow.fish
  tcsh  shmarrow completion tcsh > ~/.shmarrow.csh, and source it in ~/.tcshrc"""
_PATHS = ("target", "left", "right", "file", "source")
"""Arguments that are completed with the names of files and directories."""
_STORES = ("store", "stores")
"""Arguments that are completed with the names of directories."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _HOW
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.add_argument("--json", action="store_true", help="print errors as JSON")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Print the script for a shell."""
    shtab = optional("shtab")
    from shmarrow.cli import parser

    commands = parser([], whole=True)
    _complete_paths(commands)
    print(shtab.complete(commands, arguments.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _complete_paths(sub)
        elif action.dest in _PATHS and not action.option_strings:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in _STORES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
