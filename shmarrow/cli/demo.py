"""``shmarrow demo``: the main job on real input."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    return 0
