"""Flag types in Go's syntax: booleans, durations, listen addresses, feature gates, label keys.

The error for an invalid value names the valid syntax; click adds the name of the flag.

Source: Go strconv.ParseBool, time.ParseDuration, net.Listen; k8s.io/component-base/featuregate.
"""

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

import click

from kruise_probe.api.labels import label_key_error
from kruise_probe.api.reserved import MAX_ALLOWED_LABELS
from kruise_probe.api.times import parse_duration
from kruise_probe.cli.feature_gates import FeatureGates, GateError, parse_bool, parse_gates
from kruise_probe.serving.address import BindAddress

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAMESPACE_NAME: Final = re.compile(_LABEL)


MAX_DURATION_SECONDS: Final = (2**63 - 1) / 1e9
"""Maximum of Go's time.Duration, which counts nanoseconds: 2562047h47m16s."""


class GoBool(click.ParamType[bool]):
    """`--flag`, `--flag=true`, `--flag=false`."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        parsed = parse_bool(str(value))
        if parsed is None:
            return self.fail(f"{value!r} is not a boolean; write true or false", param, ctx)
        return parsed


class Count(click.IntRange):
    """An integer of at least `min`. click's own name for the type, "integer range", is confusing in errors."""

    name = "number"


class Rate(click.FloatRange):
    """A rate per second, 0 or more. Refuses `nan`, which would pass every comparison and mean no limit."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        rate = float(super().convert(value, param, ctx))
        if not math.isfinite(rate):
            return self.fail(f"{value!r} is not a number; write one such as 20", param, ctx)
        return rate


class Duration(click.ParamType[float]):
    """`15s`, `1m30s`, `500ms`, `0`, converted to seconds. Never negative.

    Args:
        at_least: minimum in seconds.
    """

    name = "duration"

    def __init__(self, *, at_least: float = 0.0) -> None:
        self._at_least = at_least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        seconds = parse_duration(str(value))
        if seconds is None:
            return self.fail(
                f"{value!r} is not a duration; write it as 15s, 1m30s or 500ms", param, ctx
            )
        if seconds > MAX_DURATION_SECONDS:
            return self.fail("the duration is too long; write 2562047h or less", param, ctx)
        if seconds < self._at_least:
            return self.fail(
                f"{value!r} is too short; write {self._at_least:g}s or longer", param, ctx
            )
        return seconds


class ListenAddress(click.ParamType[str]):
    """`:8080`, `127.0.0.1:8080`, `[::1]:8080`; `0` or empty disables the server."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            return text if BindAddress.parse(text) else ""
        except ValueError as error:
            return self.fail(str(error), param, ctx)


class Name(click.ParamType[str]):
    """The name of an API object, or of a namespace if `label` is true. May be empty if `optional`.

    Without this check, an invalid name would be retried forever, or match no object without an error.
    """

    name = "name"

    def __init__(self, *, label: bool = False, optional: bool = False) -> None:
        self._pattern, self._longest = (_NAMESPACE_NAME, 63) if label else (_OBJECT_NAME, 253)
        self._allowed = "a-z, 0-9 and '-'" if label else "a-z, 0-9, '-' and '.'"
        self._optional = optional

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text and self._optional:
            return text
        if len(text) > self._longest or not self._pattern.fullmatch(text):
            return self.fail(
                f"{text!r} is not a valid Kubernetes name; write at most {self._longest} characters of {self._allowed}, "
                "with a letter or digit at both ends",
                param,
                ctx,
            )
        return text


class Gates(click.ParamType[FeatureGates]):
    """`Name=true,Other=false`."""

    name = "gates"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> FeatureGates:
        if isinstance(value, FeatureGates):
            return value
        try:
            return parse_gates(str(value))
        except GateError as error:
            return self.fail(str(error), param, ctx)


class LabelKeys(click.ParamType[frozenset[str]]):
    """`example.com/a,pod-template-hash`; may be empty."""

    name = "keys"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        keys = frozenset(each.strip() for each in str(value).split(",") if each.strip())
        for key in sorted(keys):
            if problem := label_key_error(key):
                return self.fail(f"{key!r} is not a label key: {problem}", param, ctx)
        if len(keys) > MAX_ALLOWED_LABELS:
            return self.fail(
                f"{len(keys)} keys are too many; write at most {MAX_ALLOWED_LABELS}", param, ctx
            )
        return keys


class Impersonated(click.ParamType[str]):
    """The name of a user or group, which is sent in a header: printable ASCII characters."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.isascii() or not text.isprintable():
            return self.fail(f"{text!r} is not a name of printable ASCII characters", param, ctx)
        return text


GO_BOOL: Final = GoBool()
DURATION: Final = Duration()
LISTEN_ADDRESS: Final = ListenAddress()
GATES: Final = Gates()
LABEL_KEYS: Final = LabelKeys()
IMPERSONATED: Final = Impersonated()
OBJECT_NAME: Final = Name()
OPTIONAL_OBJECT_NAME: Final = Name(optional=True)
NAMESPACE: Final = Name(label=True)
OPTIONAL_NAMESPACE: Final = Name(label=True, optional=True)


class Flag(click.Option):
    """An option that can be set by an environment variable: `KRUISE_PROBE_` and the flag's long name in upper case.

    The names in `envvar` have lower precedence.
    """

    prefix: ClassVar[str] = "KRUISE_PROBE_"

    def __init__(self, declarations: list[str], **attributes: Any) -> None:
        long = next(each for each in declarations if each.startswith("--"))
        own = self.prefix + long.removeprefix("--").replace("-", "_").upper()
        others = attributes.pop("envvar", None) or []
        super().__init__(
            declarations, envvar=[own, *others], show_envvar=True, show_default=True, **attributes
        )


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def flag(*names: str, **attributes: Any) -> Decorator:
    """`@flag("--metrics-addr", type=LISTEN_ADDRESS, default=":8080", help=…)`."""
    return click.option(*names, cls=Flag, **attributes)


def bool_flag(name: str, *, default: bool, help: str) -> Decorator:
    """A boolean flag in Go's syntax: alone, `=true`, `=false`."""
    return click.option(
        name,
        cls=Flag,
        type=GO_BOOL,
        default=default,
        is_flag=False,
        flag_value="true",
        metavar="[=true|false]",
        help=help,
    )
