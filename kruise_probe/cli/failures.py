"""Recognizes errors of writing the output."""

import traceback

import click

from kruise_probe.api.errors import first_of


def output_failure(error: BaseException) -> OSError | None:
    """The error if `click.echo` raised it, as all output goes through it; None for other errors, such as of sockets."""
    first = first_of(error)
    if not isinstance(first, OSError):
        return None
    called = [frame.f_code for frame, _ in traceback.walk_tb(first.__traceback__)]
    return first if called[-1:] == [click.echo.__code__] else None
