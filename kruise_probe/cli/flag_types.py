"""Flags: their types in Go's syntax, and classes of which each field declares one flag.

The error for an invalid value names the valid syntax; click adds the name of the flag.

Source: Go strconv.ParseBool, time.ParseDuration, net.Listen.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import click
from click.core import augment_usage_errors

from kruise_probe.api.labels import label_key_error
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.reserved import MAX_ALLOWED_LABELS
from kruise_probe.api.times import parse_duration
from kruise_probe.cli.terminal import HelpContext
from kruise_probe.serving.sockets import BindAddress

T = TypeVar("T")
F = TypeVar("F")

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_MAX_NUMBER: Final = 10**9 - 1


class Parsed(click.ParamType[T]):
    """Values that `parse` reads from text; the message of its ValueError is the error."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], T],
    ) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> T:
        if not isinstance(value, str):
            converted: T = value
            return converted
        try:
            return self._parse(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        """Commas and spaces separate the values of a variable."""
        return rv.replace(",", " ").split()


BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _bool(text: str) -> bool:
    if text not in BOOLEANS:
        raise ValueError(f"{text!r} is not a boolean; write true or false")
    return BOOLEANS[text]


def number(least: int, most: int = _MAX_NUMBER) -> Parsed[int]:
    """An integer of at least `least`."""
    bounds = f"at least {least}"
    if most != _MAX_NUMBER:
        bounds = f"{least} to {most}"

    def parse(text: str) -> int:
        number = -1
        if re.fullmatch(r"\+?\d{1,9}", text):
            number = int(text)
        if least <= number <= most:
            return number
        raise ValueError(f"{text!r} is not a valid number; write a whole number of {bounds}")

    return Parsed("number", parse)


def _rate(text: str) -> float:
    """A rate per second. `nan` would pass every comparison and mean no limit."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise ValueError(f"{text!r} is not a number of 0 or more; write one such as 20")
    return rate


def duration(at_least: float = 0.0, at_most: float = math.inf) -> Parsed[float]:
    """`15s`, `1m30s`, `500ms`, `0`, in seconds."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if seconds is None:
            raise ValueError(f"{text!r} is not a duration; write it as 15s, 1m30s or 500ms")
        if seconds < at_least:
            raise ValueError(f"{text!r} is too short; write {at_least:g}s or longer")
        if seconds > at_most:
            raise ValueError(f"{text!r} is too long; write {at_most:g}s or shorter")
        return seconds

    return Parsed("duration", parse)


def _name(*, label: bool = False, optional: bool = False) -> Parsed[str]:
    """The name of an API object, or of a namespace if `label` is true. May be empty if `optional`.

    Without this check, an invalid name would be retried forever, or match no object without an error.
    """
    pattern = rf"{_LABEL}(\.{_LABEL})*"
    longest = 253
    allowed = "a-z, 0-9, '-' and '.'"
    if label:
        pattern = _LABEL
        longest = 63
        allowed = "a-z, 0-9 and '-'"

    def parse(text: str) -> str:
        if not text and optional:
            return text
        if re.fullmatch(pattern, text) and len(text) <= longest:
            return text
        raise ValueError(
            f"{text!r} is not a valid Kubernetes name; write at most {longest} characters of {allowed}, "
            "with a letter or digit at both ends"
        )

    return Parsed("name", parse)


def _label_keys(text: str) -> frozenset[str]:
    """`example.com/a,pod-template-hash`; may be empty."""
    keys = frozenset(key.strip() for key in text.split(",")) - {""}
    for key in sorted(keys):
        if problem := label_key_error(key):
            raise ValueError(f"{key!r} is not a label key: {problem}")
    if len(keys) > MAX_ALLOWED_LABELS:
        raise ValueError(f"{len(keys)} keys are too many; write at most {MAX_ALLOWED_LABELS}")
    return keys


GO_BOOL: Final = Parsed("boolean", _bool)
DURATION: Final = duration()
RATE: Final = Parsed("number", _rate)
LISTEN_ADDRESS: Final = Parsed("address", BindAddress.parse)
LABEL_KEYS: Final = Parsed("keys", _label_keys)
OBJECT_NAME: Final = _name()
OPTIONAL_OBJECT_NAME: Final = _name(optional=True)
NAMESPACE: Final = _name(label=True)
OPTIONAL_NAMESPACE: Final = _name(label=True, optional=True)


class Flag(click.Option):
    """An option with a group for --help. With `env`, `KRUISE_PROBE_` and its name in capitals is its variable.

    The names in `envvar` have lower precedence.
    """

    def __init__(
        self, declarations: list[str], *, group: str = "", env: bool = True, **attributes: Any
    ) -> None:
        self.group = group
        if env:
            (long,) = (name for name in declarations if name.startswith("--"))
            variable = long.removeprefix("--").replace("-", "_").upper()
            others = attributes.get("envvar", [])
            attributes["envvar"] = [
                f"KRUISE_PROBE_{variable}",
                *others,
            ]
        default = attributes.get("default")
        attributes.setdefault("show_default", default != "")
        if attributes.get("type") is GO_BOOL:
            attributes["default"] = str(default).lower()
            attributes["metavar"] = "[=true|false]"
        super().__init__(
            declarations,
            show_envvar=env,
            **attributes,
        )


class FlagCommand(click.Command):
    """A command whose --help lists its flags by group, and whose boolean flags need no value: `-w`, `-w=false`, `-Aw`."""

    context_class: type[click.Context] = HelpContext

    def parse_args(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> list[str]:
        """Parse the words, after each boolean flag was given its value, as pflag does."""
        booleans: dict[str, str] = {}
        for param in self.params:
            if param.type is GO_BOOL:
                booleans |= dict.fromkeys(param.opts, param.opts[-1])
        words: list[str] = []
        for index, word in enumerate(args):
            if word == "--":
                words += args[index:]
                break
            name, equals, value = word.partition("=")
            while name[:2] in booleans and name[2:]:
                words.append(f"{booleans[name[:2]]}=true")
                name = f"-{name[2:]}"
            if name in booleans:
                words.append(f"{booleans[name]}={value if equals else 'true'}")
            else:
                words.append(f"{name}{equals}{value}")
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, words)

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups.setdefault(getattr(param, "group", ""), []).append(record)
        for group in sorted(groups, key=bool):
            with formatter.section(group or "Options"):
                formatter.write_dl(groups[group])


def flag(
    help: str,
    kind: click.ParamType[Any] | None = None,
    default: Any = None,
    *,
    names: tuple[str, ...] = (),
    **attributes: Any,
) -> Any:
    """A field that declares one flag: `--` and its name, or `names`, as kubectl's flags, which have no variable."""

    def param(field: str) -> click.Parameter:
        declared = names or (f"--{field.replace('_', '-')}",)
        options = {
            "help": help,
            "type": kind,
            "default": default,
            "env": not names,
            **attributes,
        }
        return Flag([*declared, field], **options)

    return dataclasses.field(metadata={"param": param})


switch: Final = partial(
    flag,
    kind=GO_BOOL,
    default=False,
)
cluster_flag: Final = partial(flag, group="Cluster")
system_namespace_flag: Final = partial(
    cluster_flag,
    "Namespace of kruise-probe's own Leases.",
    NAMESPACE,
    SYSTEM_NAMESPACE,
    envvar=["POD_NAMESPACE"],
)
label_keys_flag: Final = partial(
    flag,
    kind=LABEL_KEYS,
    default="",
    metavar="KEY,…",
)
same_label_keys_flag: Final = partial(label_keys_flag, "The same value as the manager's flag.")
file_flag: Final = partial(
    flag,
    kind=click.Path(),
    names=("-f", "--filename"),
    metavar="FILE",
)
port_flag: Final = partial(
    flag,
    kind=LISTEN_ADDRESS,
    group="Metrics and health",
)


def argument(metavar: str, **attributes: Any) -> Any:
    """A field that declares one argument."""

    def param(field: str) -> click.Parameter:
        return click.Argument(
            [field],
            metavar=metavar,
            **attributes,
        )

    return dataclasses.field(metadata={"param": param})


def flag_command(
    declaring: Callable[..., F], *, name: str = ""
) -> Callable[[Callable[[F], Any]], click.Command]:
    """Make a command of a function that takes the flags and arguments as an instance of a dataclass.

    A field without a flag keeps its default. The function's docstring is the help text.
    """

    def command(function: Callable[[F], Any]) -> click.Command:
        fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(declaring)  # type: ignore[arg-type]
        return FlagCommand(
            name or function.__name__,
            callback=lambda **values: function(declaring(**values)),
            params=[field.metadata["param"](field.name) for field in fields if field.metadata],
            help=function.__doc__,
        )

    return command
