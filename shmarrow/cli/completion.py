# SPDX-License-Identifier: Apache-2.0
"""``shmarrow completion``: what a shell needs to complete commands, options and paths, made by shtab."""

from __future__ import annotations

import argparse

from shmarrow.cli.command import JSON, argument, command
from shmarrow.errors import optional

SHELLS = ("bash", "zsh", "fish", "tcsh")
_HOW = """\
to install it:
  bash  mkdir -p ~/.local/share/bash-completion/completions
        shmarrow completion bash > ~/.local/share/bash-completion/completions/shmarrow
  zsh   mkdir -p ~/.zfunc                              (a directory of fpath)
        shmarrow completion zsh > ~/.zfunc/_shmarrow
  fish  shmarrow completion fish > ~/.config/fish/completions/shmarrow.fish
  tcsh  shmarrow completion tcsh > ~/.shmarrow.csh, and source it in ~/.tcshrc"""
_FILES = ("target", "left", "right", "file", "source")
"""Arguments that are completed with the names of files and directories."""
_DIRECTORIES = ("store", "stores")
"""Arguments that are completed with the names of directories."""


@command(argument("shell", choices=SHELLS, help="the shell"), JSON, epilog=_HOW)
def completion(arguments: argparse.Namespace) -> int:
    """Print the script for a shell."""
    shtab = optional("shtab")
    from shmarrow.cli import parser

    completed = {**dict.fromkeys(_FILES, shtab.FILE), **dict.fromkeys(_DIRECTORIES, shtab.DIRECTORY)}
    print(shtab.complete(parser([], completed), arguments.shell))
    return 0
