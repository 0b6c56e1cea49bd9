"""The fields `extract` and `successWhen` of a probe: which value an attempt publishes, and when it succeeds.

Decimals are written as integers or texts; `canonical` makes equal ones equal, so that they have one hash.

Source: kubernetes.io/docs/reference/kubectl/jsonpath for the words of a path; prometheus.io/docs/instrumenting/exposition_formats.
Differs: a path has no filters, no wildcards and no slices, so that it finds at most one value.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, ClassVar, Final, Self

import msgspec

from kruise_probe.api.fields import Field, literal, rule
from kruise_probe.api.problems import ErrorKind
from kruise_probe.api.reserved import MAX_PATTERN, PATTERN
from kruise_probe.api.structs import Wire

MAX_WORDS: Final = 256
"""Maximum characters of a metric's name, a path and a default."""
MAX_CODES: Final = 16
MAX_LABELS: Final = 8
MAX_LABEL_VALUE: Final = 253

_DIGITS: Final = "-?[0-9]+([.][0-9]+)?"
_DECIMAL: Final = "-?[0-9]{1,19}([.][0-9]{1,18})?"
"""With as many digits as the largest integer of the API server, because the canonical form of an integer is a text."""
_STEP: Final = "(0*[1-9][0-9]*([.][0-9]+)?|0+[.]0*[1-9][0-9]*)"
_MAX_STEP: Final = 37
_CODES: Final = "[1-5][0-9]{2}(-[1-5][0-9]{2})?"
# In CEL too, therefore RE2's subset.
_STEP_OF_PATH: Final = (
    r"[.]([^\]\[.\\'\"*?@$(){},: ]|\\.)+|\[[0-9]{1,9}\]|\['([^'\\]|\\.)*'\]|\[\"([^\"\\]|\\.)*\"\]"
)
_PATH: Final = f"({_STEP_OF_PATH})+"
_PATH_MESSAGE: Final = (
    "must be a path such as .a.b[0]['x-y'], without '$', '{}', filters and wildcards"
)
ONLY_OUTPUT: Final = "is for exec and httpGet only, because other handlers have no output"


def _decimal_of(written: int | str) -> Decimal:
    """The number of a valid decimal, otherwise 0: its own rule reports it."""
    if isinstance(written, str) and not re.fullmatch(_DIGITS, written):
        return Decimal()
    return Decimal(written)


def plain(number: Decimal) -> str:
    """A finite number without exponent and without zeros at the end of its fraction."""
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _canonical(written: int | str | None) -> str | None:
    return None if written is None else plain(_decimal_of(written))


def path_steps(path: str) -> list[str | int]:
    """The keys and indexes of a valid path."""
    steps: list[str | int] = []
    for match in re.finditer(_STEP_OF_PATH, path):
        step = match[0]
        if step[0] == ".":
            steps.append(re.sub(r"\\(.)", r"\1", step[1:]))
        elif step[1] in "'\"":
            steps.append(re.sub(r"\\(.)", r"\1", step[2:-2]))
        else:
            steps.append(int(step[1:-1]))
    return steps


_DECIMAL_FIELD: Final = Field(
    rules=(
        rule(
            "must be a decimal number, such as 10 or '0.5'",
            "",
            lambda written: isinstance(written, int) or re.fullmatch(_DECIMAL, written),
        ),
    ),
    schema={"maxLength": 38, "pattern": f"^{_DECIMAL}$"},
)
_STEP_FIELD: Final = Field(
    least=1,
    most=10**18,
    rules=(
        rule(
            "must be a decimal number above 0, such as 10 or '0.5'",
            "",
            lambda written: (
                isinstance(written, int)
                or (len(written) <= _MAX_STEP and re.fullmatch(_STEP, written))
            ),
        ),
    ),
    schema={"maxLength": _MAX_STEP, "pattern": f"^{_STEP}$"},
)


def sample_text(name: str, labels: Mapping[str, str]) -> str:
    """A sample without its value, as Prometheus writes it."""
    pairs = ", ".join([f'{label}="{value}"' for label, value in labels.items()])
    return f"{name}{{{pairs}}}" if pairs or not name else name


class MetricSample(Wire, frozen=True):
    """A sample in the text format of Prometheus.

    Attributes:
        name: Name of the sample, of a histogram or summary with its suffix, such as _count.
        labels: Labels that the sample must have, with these values.
    """

    name: Annotated[str, Field(least=1, most=MAX_WORDS)]
    labels: Annotated[
        Mapping[str, Annotated[str, Field(most=MAX_LABEL_VALUE)]], Field(most=MAX_LABELS)
    ] = {}


class Extract(Wire, frozen=True):
    """One value of the output (exec: stdout) or body (httpGet), which is then the message of a success.

    Attributes:
        metric: A sample of the Prometheus text format.
        json_path: Path to a value of JSON, such as .a.b[0]['x-y'].
        regex: RE2 pattern that matches within one line. The value is group 1 of its first match, or the whole match.
        default: The value if nothing is found, such as for a metric that is absent before its first use.
        step: A number is rounded down to a multiple of this decimal, so that small changes write nothing.
    """

    metric: MetricSample | None = None
    json_path: Annotated[
        str | None,
        Field(
            least=1,
            most=MAX_WORDS,
            rules=(
                rule(
                    _PATH_MESSAGE,
                    f"self.matches({literal(f'^{_PATH}$')})",
                    lambda path: re.fullmatch(_PATH, path),
                ),
            ),
        ),
    ] = None
    regex: Annotated[str | None, Field(least=1, most=MAX_PATTERN, rules=(PATTERN,))] = None
    default: Annotated[str | None, Field(most=MAX_WORDS)] = None
    step: Annotated[int | str | None, _STEP_FIELD] = None

    RULES: ClassVar = (
        rule(
            "must set exactly one of metric, jsonPath and regex",
            "[has(self.metric), has(self.jsonPath), has(self.regex)].exists_one(set, set)",
            lambda extract: [extract.metric, extract.json_path, extract.regex].count(None) == 2,
            kind=ErrorKind.REQUIRED,
        ),
    )

    @property
    def source(self) -> str:
        """Where the value comes from, on one line."""
        if self.metric is not None:
            return f"metric {sample_text(self.metric.name, self.metric.labels)}"
        if self.json_path is not None:
            return f"jsonPath {self.json_path}"
        return f"regex '{self.regex}'"

    @property
    def canonical(self) -> Self:
        return msgspec.structs.replace(self, step=_canonical(self.step))


class Epoch(Wire, frozen=True):
    """The term of a leader: a number in the output (exec: stdout) or body (httpGet) of a success.

    Attributes:
        regex: RE2 pattern that matches within one line. Group 1 of its first match, or the whole match, is a decimal number
            below 2^64. Anything else is no epoch.
    """

    regex: Annotated[str, Field(least=1, most=MAX_PATTERN, rules=(PATTERN,))]


class SuccessWhen(Wire, frozen=True):
    """When an attempt succeeds: all clauses must hold.

    Attributes:
        status_codes: httpGet: the status codes of a success, such as 503 or "200-299", instead of 200 to 399.
        exit_codes: exec: the exit codes of a success, instead of 0.
        regex: RE2 pattern that must match within a line of the output or body.
        min: Least value of the extracted number, before it is rounded to step: an integer or the text of a decimal.
        max: Greatest value of the extracted number, before it is rounded to step.
    """

    status_codes: Annotated[
        tuple[
            Annotated[
                int | str,
                Field(
                    least=100,
                    most=599,
                    rules=(
                        rule(
                            "must be a status code such as 503, or a range such as 200-299",
                            "",
                            lambda codes: not isinstance(codes, str) or status_range(codes),
                        ),
                    ),
                    schema={"maxLength": 7, "pattern": f"^{_CODES}$"},
                ),
            ],
            ...,
        ],
        Field(most=MAX_CODES),
    ] = ()
    exit_codes: Annotated[
        tuple[Annotated[int, Field(least=0, most=255, schema={"format": "int32"})], ...],
        Field(most=MAX_CODES),
    ] = ()
    regex: Annotated[str | None, Field(least=1, most=MAX_PATTERN, rules=(PATTERN,))] = None
    min: Annotated[int | str | None, _DECIMAL_FIELD] = None
    max: Annotated[int | str | None, _DECIMAL_FIELD] = None

    RULES: ClassVar = (
        rule(
            "must set statusCodes, exitCodes, regex, min or max",
            "(has(self.statusCodes) && self.statusCodes.size() > 0) || "
            "(has(self.exitCodes) && self.exitCodes.size() > 0) || "
            "has(self.regex) || has(self.min) || has(self.max)",
            lambda when: when != SuccessWhen(),
            kind=ErrorKind.REQUIRED,
        ),
        rule(
            "must not be greater than max",
            "!has(self.min) || !has(self.max) || double(self.min) <= double(self.max)",
            lambda when: (
                when.min is None
                or when.max is None
                or _decimal_of(when.min) <= _decimal_of(when.max)
            ),
            field="min",
        ),
    )

    @property
    def compares(self) -> bool:
        """Whether it needs a number."""
        return self.min is not None or self.max is not None

    @property
    def canonical(self) -> Self:
        return msgspec.structs.replace(self, min=_canonical(self.min), max=_canonical(self.max))


def status_range(codes: str) -> range | None:
    """The status codes of a text; None if it is invalid."""
    if not re.fullmatch(_CODES, codes):
        return None
    first, _, last = codes.partition("-")
    return range(int(first), int(last or first) + 1) or None
