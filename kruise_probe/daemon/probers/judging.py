"""The result of an attempt whose probe has `extract`, `successWhen` or an `epoch`. Attempts of other probes never come here.

`judged` is a function of the output and these fields, in bounded steps. The first step is cheap and runs at once;
the others may take milliseconds and run in threads, which tenants share.

Source: kubelet pkg/probe for codes.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.criteria import Epoch, Extract, SuccessWhen, status_range
from kruise_probe.api.extraction import PatternTooCostly, Steps, match_in_lines, matched_value
from kruise_probe.api.messages import normalise_message
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.probers.prober import (
    MAX_TEXT_BYTES,
    CouldNotProbe,
    Output,
    ProbeResult,
    Reason,
    Resources,
    failure,
    success,
)
from kruise_probe.daemon.probers.values import (
    NoValue,
    Value,
    number_of,
    rounded,
    text_of,
    value_in,
    whole_lines,
)

MAX_EPOCH: Final = 2**64 - 1
MAX_EPOCH_DIGITS: Final = 32
"""With zeros at the beginning."""


class ValueCriteria(NamedTuple):
    """The criteria of one probe.

    Attributes:
        codes: as in the marker, with the name of their field; empty for those of the kubelet.
        allowed: the codes of a success.
    """

    extract: Extract | None
    when: SuccessWhen
    codes: str
    allowed: frozenset[int]
    epoch: Epoch | None = None

    @property
    def reads_text(self) -> bool:
        return (self.extract or self.when.regex or self.epoch) is not None

    def allows(self, code: int, *, is_success: bool) -> bool:
        if not self.codes:
            return is_success
        return code in self.allowed

    async def judge(self, output: Output, resources: Resources, deadline: float) -> ProbeResult:
        steps = judged(output, self)
        result: ProbeResult | None = None

        def advance() -> bool:
            """Run a step. Return whether it was the last one."""
            nonlocal result
            try:
                next(steps)
            except StopIteration as end:
                result = end.value
            return result is not None

        try:
            has_ended = advance()
            while not has_ended:
                has_ended = await resources.compute(advance, deadline)
        except (NoValue, PatternTooCostly) as error:
            text = normalise_message(str(error))
            raise CouldNotProbe(Reason.NO_VALUE, text) from error
        except TimeoutError as error:
            text = "the timeout ended before the value was found; raise timeoutSeconds"
            raise CouldNotProbe(Reason.NO_VALUE, text) from error
        assert result is not None
        return result


def criteria_of(entry: ContainerProbe) -> ValueCriteria:
    """The criteria of a valid probe."""
    when = entry.success_when or SuccessWhen()
    allowed = set(when.exit_codes)
    for code in when.status_codes:
        allowed.update(status_range(str(code)) or ())
    codes = ""
    if when.exit_codes:
        codes = _listed("exitCodes", when.exit_codes)
    if when.status_codes:
        codes = _listed("statusCodes", when.status_codes)
    return ValueCriteria(
        entry.extract,
        when,
        codes,
        frozenset(allowed),
        entry.epoch,
    )


def _listed(field: str, codes: Iterable[int | str]) -> str:
    texts = [str(code) for code in codes]
    listed = ", ".join(texts)
    return f"{field} {listed}"


def judged(output: Output, criteria: ValueCriteria) -> Steps[ProbeResult]:
    """Raises: NoValue, PatternTooCostly."""
    lines = whole_lines(output.text, is_cut=output.is_cut)
    pattern = criteria.when.regex
    if pattern is not None:
        match = yield from match_in_lines(lines, pattern)
        if match is None:
            problem = f"no line matches regex {pattern!r}"
            if output.is_cut:
                problem += f" in the first {MAX_TEXT_BYTES:,} bytes"
            return failure(normalise_message(problem))
    extract = criteria.extract
    if extract is None:
        text = output.introduction + output.text
        result = success(normalise_message(text))
    else:
        value = yield from value_in(output.text, extract, is_cut=output.is_cut)
        result = _compared(value, extract, criteria.when)
    if criteria.epoch is None or not result.succeeded:
        return result
    epoch = yield from _epoch_in(lines, criteria.epoch.regex)
    return msgspec.structs.replace(result, epoch=epoch)


def _epoch_in(text: bytes, pattern: str) -> Steps[int | None]:
    """The number that the pattern finds. None: there is none, or it is larger than 64 bits, or the pattern is too costly."""
    try:
        match = yield from match_in_lines(text, pattern)
    except PatternTooCostly:
        return None
    if match is None:
        return None
    digits = matched_value(match)
    if digits is None or not digits.isdigit():
        return None
    if len(digits) > MAX_EPOCH_DIGITS:
        return None
    epoch = int(digits)
    if epoch > MAX_EPOCH:
        return None
    return epoch


def _compared(value: Value, extract: Extract, when: SuccessWhen) -> ProbeResult:
    """The result of a value: its number is compared with min and max, and published rounded."""
    exact = text_of(value)
    text = exact
    name = _name_of(extract)
    compared = f"{name} {exact}"
    if extract.step is not None:
        # The message stays the same while the value changes within a step, and an equal message is not written.
        number = number_of(value, needed_for="step")
        text = text_of(rounded(number, extract.step))
        compared = f"{name} {text} in steps of {extract.step}"
    problem = ""
    most = when.max
    least = when.min
    if when.compares:
        number = number_of(value, needed_for="a comparison")
        if most is not None and number > Decimal(most):
            problem = f"{compared} > max {most}"
        if least is not None and number < Decimal(least):
            problem = f"{compared} < min {least}"
    succeeded = not problem
    message = normalise_message(problem or text)
    return ProbeResult(succeeded, message, value=exact)


def _name_of(extract: Extract) -> str:
    if extract.metric is not None:
        return extract.metric.name
    return extract.json_path or "value"
