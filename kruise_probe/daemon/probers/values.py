"""Finds one value in the output of a command or the body of a response: `extract` of a probe. Pure functions, in steps.

The text comes from a pod. So only the lines of a metric and the parents of a path are parsed, and each step is bounded.

Source: prometheus.io/docs/instrumenting/exposition_formats and the OpenMetrics specification; RFC 8259.
Differs: of two members of a JSON object with the same name, the last one counts, as in Go.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Context, Decimal, InvalidOperation
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kruise_probe.api.criteria import Extract, MetricSample, path_steps, plain, sample_text
from kruise_probe.api.extraction import Steps, match_in_lines, matched_value
from kruise_probe.daemon.probers.prober import MAX_TEXT_BYTES

MAX_VALUE_BYTES: Final = 256

_MAX_LINE_BYTES: Final = 8 * 1024
_MAX_SAMPLES: Final = 1024
"""How many lines are parsed for one metric."""
_PARSED_PER_STEP: Final = 8 * 1024
"""How many bytes of samples are parsed in one step, which takes 4 ms; each counts at least `_SAMPLE_BYTES`."""
_SAMPLE_BYTES: Final = 128
_LINES_PER_STEP: Final = 4096
_LISTED: Final = 2
"""How many samples a message lists."""

_OBJECT: Final = ord("{")
_LIST: Final = ord("[")
_BEFORE_EXEMPLAR: Final = re.compile(rb'[^{#]*+(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*+")*+\})?+[^#]*+')
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NAME: Final = re.compile(
    rb'^[ \t]*+(?:\{[ \t]*+"((?:[^"\\\n]|\\.)*+)"|([^#\s{"][^\s{"]*+)(?=[{ \t]))', re.MULTILINE
)
"""The name at the begin of a line that is a sample; in braces it is quoted."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,64}(?:[.][0-9]{1,64})?(?:[eE][+-]?[0-9]{1,2})?")
_EXACT: Final = Context(prec=2 * MAX_VALUE_BYTES)

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(float_hook=Decimal).decode

Value = str | Decimal


class NoValue(Exception):
    """There is no value; the text says what was found.

    Attributes:
        nothing_found: a default applies.
        names: those that the text has instead.
    """

    def __init__(
        self,
        message: str,
        *,
        nothing_found: bool = False,
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        super().__init__(message)
        self.nothing_found = nothing_found
        self.names = names


def value_in(text: bytes, extract: Extract, *, is_cut: bool) -> Steps[Value]:
    """The value that `extract` names. `is_cut`: the text is longer.

    Raises:
        NoValue: there is none, and no default applies.
        PatternTooCostly: the text is too large for the pattern.
    """
    if not text or text.isspace():
        raise NoValue("the text is empty")
    lines = whole_lines(text, is_cut=is_cut)
    try:
        if extract.metric is not None:
            value: Value = yield from metric_value(lines, extract.metric)
        elif extract.json_path is not None:
            value = yield from json_value(text, extract.json_path)
        else:
            value = yield from regex_value(lines, extract.regex or "")
    except NoValue as missing:
        if is_cut:
            raise NoValue(f"{missing} in the first {MAX_TEXT_BYTES:,} bytes") from missing
        if not missing.nothing_found or extract.default is None:
            raise
        value = extract.default
    return _checked(value)


def whole_lines(text: bytes, *, is_cut: bool) -> bytes:
    """The text without its last line, if that is cut."""
    if not is_cut:
        return text
    return text[: text.rfind(b"\n") + 1]


def _checked(value: Value) -> Value:
    """Raises: NoValue, if it is too long or has several lines."""
    if isinstance(value, Decimal):
        digits = value.as_tuple().digits
        exponent = value.adjusted()
        written = len(digits) + abs(exponent)
        if written > MAX_VALUE_BYTES:
            raise NoValue(f"the number has more than {MAX_VALUE_BYTES} digits")
        return value
    encoded = value.encode(errors="replace")
    if len(encoded) > MAX_VALUE_BYTES:
        raise NoValue(f"the value has more than {MAX_VALUE_BYTES} bytes")
    lines = value.splitlines()
    if len(lines) > 1 or value.endswith(("\n", "\r")):
        raise NoValue("the value has several lines")
    return value


def number_of(value: Value, *, needed_for: str) -> Decimal:
    """Raises: NoValue, if the value is no number."""
    if isinstance(value, Decimal):
        return value
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        raise NoValue(f'"{value}" is no number, which {needed_for} needs')
    return Decimal(text)


def rounded(number: Decimal, step: str | int) -> Decimal:
    """The number, rounded down to a multiple of `step`."""
    size = Decimal(step)
    exact = _EXACT.divide(number, size)
    steps = exact.to_integral_value("ROUND_FLOOR")
    return _EXACT.multiply(steps, size)


def text_of(value: Value) -> str:
    """The value as it is published: numbers without exponent."""
    if isinstance(value, str):
        return value
    return plain(value)


def metric_value(text: bytes, wanted: MetricSample) -> Steps[Decimal]:
    """The value of the only sample with this name and these labels.

    Raises:
        NoValue: no or several samples, a malformed one, or a value that is not finite.
    """
    found = yield from _samples(text, wanted)
    if not found:
        missing = sample_text(wanted.name, wanted.labels)
        raise NoValue(
            f"no sample of {missing}",
            nothing_found=True,
            names=lambda: names_of_metrics(text),
        )
    if len(found) > 1:
        count = str(_LISTED)
        if len(found) > _LISTED:
            count = f"more than {_LISTED}"
        texts = [sample_text("", sample.labels) for sample in found[:_LISTED]]
        listed = ", ".join(texts)
        raise NoValue(f"{count} samples of {wanted.name}: {listed}")
    sample = found[0]
    value = Decimal(repr(sample.value))
    if not value.is_finite():
        raise NoValue(f"{wanted.name} is not finite: {value}")
    return value


def _samples(text: bytes, wanted: MetricSample) -> Steps[list[Sample]]:
    """The first samples with this name and these labels, one more than a message lists. Raises: NoValue."""
    escaped = wanted.name.translate(_ESCAPES).encode()
    found: list[Sample] = []
    parsed = 0
    parsed_bytes = 0
    for number, line in enumerate(_lines_with(escaped, text), start=1):
        if number % _LINES_PER_STEP == 0:
            yield
        name = _NAME.match(line)
        if name is None or _name_in(name) != escaped:
            continue
        parsed += 1
        if parsed > _MAX_SAMPLES:
            raise NoValue(f"more than {_MAX_SAMPLES:,} samples of {wanted.name}; use fewer")
        parsed_bytes += max(len(line), _SAMPLE_BYTES)
        if parsed_bytes > _PARSED_PER_STEP:
            parsed_bytes = 0
            yield
        sample = _parsed(line)
        has_labels = wanted.labels.items() <= sample.labels.items()
        if sample.name == wanted.name and has_labels:
            found.append(sample)
        if len(found) > _LISTED:
            break
    return found


def names_of_metrics(text: bytes) -> list[str]:
    """The names of all samples."""
    names: dict[str, None] = {}
    for found in _NAME.finditer(text):
        name = _name_in(found)
        decoded = name.decode(errors="replace")
        names[decoded] = None
    return list(names)


def _name_in(found: re.Match[bytes]) -> bytes:
    name: bytes = found[found.lastindex or 0]
    return name


def _lines_with(word: bytes, text: bytes) -> Iterator[bytes]:
    """The lines that have `word` anywhere."""
    end = 0
    at = text.find(word)
    while at >= 0:
        newline = text.rfind(b"\n", end, at)
        begin = newline + 1
        end = text.find(b"\n", at)
        if end < 0:
            end = len(text)
        yield text[begin:end]
        at = text.find(word, end)


def _parsed(line: bytes) -> Sample:
    """Raises: NoValue, if the line is malformed."""
    if len(line) > _MAX_LINE_BYTES:
        raise NoValue(f"a sample has more than {_MAX_LINE_BYTES:,} bytes")
    kept = _BEFORE_EXEMPLAR.match(line)
    if kept is not None:
        line = kept[0]
    try:
        (family,) = text_string_to_metric_families(line.decode())
        (sample,) = family.samples
    except Exception as error:
        shown = line[:80].decode(errors="replace")
        raise NoValue(f"malformed sample {shown!r}") from error
    return sample


def json_value(text: bytes, path: str) -> Steps[Value]:
    """The string, number or boolean at `path`.

    Raises:
        NoValue: the text is no JSON, or has no such value there.
    """
    text = text.lstrip()
    try:
        part = yield from _part_at(path, text)
        value = _scalar(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoValue(f"no JSON: {error}") from error
    except InvalidOperation as error:  # an exponent of 19 digits
        raise NoValue(f"{path} is a number out of range") from error
    if value is None:
        raise NoValue(f"{path} is null", nothing_found=True)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return Decimal(value)


def _part_at(path: str, text: bytes) -> Steps[memoryview]:
    """The scalar at `path`. Raises: NoValue, if there is none; errors of msgspec."""
    part = memoryview(text)
    for step in path_steps(path):
        part = _child(part, step, path)
        if len(part) > _MAX_LINE_BYTES:
            yield
    kind = part[0]
    if kind == _OBJECT:
        raise NoValue(f"{path} is an object")
    if kind == _LIST:
        raise NoValue(f"{path} is a list")
    return part


def _child(part: memoryview, step: str | int, path: str) -> memoryview:
    """The member or item of `part`, which begins without blanks. Raises: NoValue, if there is none; errors of msgspec."""
    names: list[str] = []
    kind = part[0]
    if isinstance(step, str) and kind == _OBJECT:
        members = _members(part)
        if step in members:
            member = members[step]
            return memoryview(member)
        names = list(members)
    elif isinstance(step, int) and kind == _LIST:
        items = _items(part)
        if step < len(items):
            item = items[step]
            return memoryview(item)
    else:
        _ = msgspec.json.decode(part, type=msgspec.Raw)
    raise NoValue(
        f"{path}: no {step!r}",
        nothing_found=True,
        names=lambda: names,
    )


def regex_value(text: bytes, pattern: str) -> Steps[str]:
    """What `pattern` finds within a line.

    Raises:
        NoValue: nothing.
        PatternTooCostly: the text is too large for the pattern.
    """
    match = yield from match_in_lines(text, pattern)
    found: bytes | None = None
    if match is not None:
        found = matched_value(match)
    if found is None:
        raise NoValue(
            f"no line matches {pattern!r}",
            nothing_found=True,
            names=lambda: text.decode(errors="replace").splitlines(),
        )
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise NoValue("the value is no UTF-8") from error
