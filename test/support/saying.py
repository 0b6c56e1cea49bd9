"""What a long test says while it runs."""

import sys


def say(text: str) -> None:
    sys.stdout.write(f"soak: {text}\n")
    sys.stdout.flush()
