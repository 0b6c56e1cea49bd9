"""Figures that a long test prints while it runs."""

import sys


def print_line(text: str) -> None:
    sys.stdout.write(f"soak: {text}\n")
    sys.stdout.flush()
