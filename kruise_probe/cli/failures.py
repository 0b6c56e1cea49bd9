"""Classification of failures: the first error of a group, and errors of writing the output."""

import traceback

import click


def first_of(error: BaseException) -> BaseException:
    """The error itself, or the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def output_failure(error: BaseException) -> OSError | None:
    """The error if `click.echo` raised it, as all output goes through it; None for other errors, such as of sockets."""
    first = first_of(error)
    if not isinstance(first, OSError):
        return None
    called = [frame.f_code for frame, _ in traceback.walk_tb(first.__traceback__)]
    return first if called[-1:] == [click.echo.__code__] else None
