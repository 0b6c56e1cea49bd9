"""What a failure was about: which error of a group, and whether it is that our output cannot be written."""

import traceback

import click


def first_of(error: BaseException) -> BaseException:
    """The error itself, or the first of a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def output_failure(error: BaseException) -> OSError | None:
    """The error that `click.echo` met, through which everything is printed; None for any other, of sockets say."""
    first = first_of(error)
    if not isinstance(first, OSError):
        return None
    called = [frame.f_code for frame, _ in traceback.walk_tb(first.__traceback__)]
    return first if called[-1:] == [click.echo.__code__] else None
