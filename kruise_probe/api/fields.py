"""Declares a field of our kinds once, where it is defined: its meaning, its bounds and its rules.

    class HTTPGetAction(msgspec.Struct):
        # In the docstring, below "Attributes:" -- path: Path of the request. The CRD and the reference have this text.
        path: Annotated[str | None, Field(most=4096, rules=(NO_CONTROLS,))] = None

The CRDs' schemas with their CEL rules are generated from it (`hack/lib/crd_schemas.py`), and from these the reference and lint.
Validation uses it as it is (`errors_in`). msgspec ignores it: an object that breaks a rule still decodes.

Source: apiextensions/v1 JSONSchemaProps and ValidationRule.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from kruise_probe.api.problems import ErrorKind, Problem, shorten, violation

Check = Callable[[Any, str], Iterable[Problem]]


class Use(IntEnum):
    """What an object is checked for, from the strictest to the most tolerant."""

    ADMISSION = 0
    """The API server and the webhook accept a marker, and lint a file."""
    STORED = 1
    """The manager uses a stored marker, which may be older than a rule or bound."""
    RUN = 2
    """The daemon runs a probe. It clamps numbers, and reports itself why it refuses a host or a port name."""


class Rule(NamedTuple):
    """A rule of a value, for the API server and in Python.

    Attributes:
        cel: over `self`, with what Kubernetes 1.30 has (no `format` library, no two-variable macros). Empty if CEL cannot check it.
        check: the errors of a value at a path. None if they depend on more than the value: `api.validation` finds these.
        kind: of the error; for the API server only REQUIRED and FORBIDDEN.
        field: the field of the value that the rule is about.
        item: a CEL expression for the name of an item, in front of the message.
        last: the last use for which the rule counts.
    """

    message: str
    cel: str
    check: Check | None = None
    kind: ErrorKind = ErrorKind.INVALID
    field: str = ""
    item: str = ""
    last: Use = Use.RUN


class Field(NamedTuple):
    """What Kubernetes and users know about a field, beside its name and type.

    Attributes:
        least, most: bounds of a number, or of the number of characters, items or entries. A text or list with `least` is required.
        values: the allowed ones; the empty one counts as absent.
        required: also if its type allows None, because Kruise's CRD does.
        clamped: the daemon uses the nearest number within the bounds.
        open: the API server stores it as it is, because a closed schema costs it CPU.
        schema: further parts of the schema.
    """

    least: int | None = None
    most: int | None = None
    values: tuple[str, ...] = ()
    default: str | None = None
    required: bool = False
    clamped: bool = False
    open: bool = False
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] = {}


class Shape(NamedTuple):
    """A type with its declarations.

    Attributes:
        kind: `string`, `integer`, `boolean`, `int-or-string`, `array`, `map` or `object`.
        items: of a list, or the values of a map.
        struct, properties: of an object: its type, and its fields by attribute.
        name, required: of a property: its name on the wire, and whether it must be present.
    """

    kind: str
    field: Field
    items: "Shape | None" = None
    struct: type[msgspec.Struct] | None = None
    properties: Mapping[str, "Shape"] = {}
    name: str = ""
    required: bool = False


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    """The shape of a struct. The class variables `RULES` of it and its bases have the rules of all of its values."""
    return _shape(struct, Field())


def _shape(annotation: Any, field: Field) -> Shape:
    if get_origin(annotation) is Annotated:
        annotation, field = get_args(annotation)
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        options = [option for option in arguments if option is not NoneType]
        if len(options) == 2:
            return Shape("int-or-string", field)
        return _shape(options[0], field)
    if get_origin(annotation) is tuple:
        return Shape(
            "array",
            field,
            _shape(arguments[0], Field()),
        )
    if arguments:
        return Shape(
            "map",
            field,
            _shape(arguments[1], Field()),
        )
    if issubclass(annotation, msgspec.Struct):
        return _shape_of_object(annotation, field)
    kinds = {int: "integer", bool: "boolean"}
    return Shape(kinds.get(annotation, "string"), field)


def _shape_of_object(struct: type[msgspec.Struct], field: Field) -> Shape:
    rules: tuple[Rule, ...] = ()
    for base in struct.__mro__:
        rules += vars(base).get("RULES", ())
    hints = get_type_hints(struct, include_extras=True)
    properties: dict[str, Shape] = {}
    for attribute in msgspec.structs.fields(struct):
        shape = _shape(hints[attribute.name], Field())
        properties[attribute.name] = shape._replace(
            name=attribute.encode_name,
            required=attribute.required or shape.field.required,
        )
    field = field._replace(rules=rules + field.rules)
    return Shape("object", field, struct=struct, properties=properties)


def errors_in(
    value: Any,
    shape: Shape,
    path: str,
    use: Use = Use.ADMISSION,
) -> Iterator[Problem]:
    """The broken bounds and rules of a value and of everything in it, lazily.

    Upper bounds of texts and lists (`CEL_BOUNDS`) count for admission only.
    """
    field = shape.field
    if value is None:
        if field.required:
            yield violation(path, ErrorKind.REQUIRED, "must be set")
        return
    if isinstance(value, int):
        yield from _number_errors(value, field, path, use)
    elif shape.kind in ("string", "array", "map"):
        yield from _size_errors(value, field, path, use)
    if field.values and value not in field.values:
        known = ", ".join(f'"{known}"' for known in field.values if known)
        yield violation(
            path,
            ErrorKind.NOT_SUPPORTED,
            f"supported values: {known}",
            value,
        )
    for rule in field.rules:
        if rule.check is not None and use <= rule.last:
            yield from rule.check(value, path)
    for attribute, inner in shape.properties.items():
        place = f"{path}.{inner.name}" if path else inner.name
        yield from errors_in(getattr(value, attribute), inner, place, use)
    if shape.items is not None:
        yield from _item_errors(value, shape.items, path, use)


def _item_errors(
    values: Any,
    shape: Shape,
    path: str,
    use: Use,
) -> Iterator[Problem]:
    """The errors of the items of a list, or of the values of a map."""
    entries = values.items() if isinstance(values, Mapping) else enumerate(values)
    for key, item in entries:
        yield from errors_in(
            item,
            shape,
            f"{path}[{shorten(str(key))}]",
            use,
        )


def _number_errors(
    value: int,
    field: Field,
    path: str,
    use: Use,
) -> Iterator[Problem]:
    if field.most is None or (field.clamped and use is Use.RUN):
        return
    least = field.least or 0
    if not least <= value <= field.most:
        detail = f"must be between {least} and {field.most}, inclusive"
        yield violation(path, ErrorKind.INVALID, detail, value)


def _size_errors(
    value: Any,
    field: Field,
    path: str,
    use: Use,
) -> Iterator[Problem]:
    size = len(value)
    if size < (field.least or 0):
        yield violation(path, ErrorKind.REQUIRED, "must not be empty")
    if field.most is None or size <= field.most or use is not Use.ADMISSION:
        return
    if isinstance(value, str):
        detail = f"may not be more than {field.most} characters"
        yield violation(path, ErrorKind.TOO_LONG, detail)
    else:
        yield violation(
            path,
            ErrorKind.TOO_MANY,
            f"must have at most {field.most} items",
            size,
        )


def rule(
    message: str,
    cel: str,
    holds: Callable[[Any], object],
    *,
    kind: ErrorKind = ErrorKind.INVALID,
    field: str = "",
    last: Use = Use.RUN,
) -> Rule:
    """A rule with one error: `holds` is false."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not holds(value):
            place = f"{path}.{field}" if field else path
            is_shown = kind is ErrorKind.INVALID and isinstance(value, str)
            yield violation(place, kind, message, value if is_shown else None)

    return Rule(message, cel, check, kind, field, last=last)


TEXT = "[self].filter(t, t != '')"
"""CEL: a text as a list of keys, which has no key if the text is empty."""


def each_key(
    message: str,
    cel: str,
    error: Callable[[str], str | None] | None,
    *,
    keys: str = "self",
    kind: ErrorKind = ErrorKind.INVALID,
) -> Rule:
    """A rule of every key of a map, every item of a list, or a text (`keys` is TEXT then). `cel` is about the variable `k`.

    `error` says what is wrong with a key.
    """

    def check(value: Any, path: str) -> Iterator[Problem]:
        assert error is not None
        keys = [value] if isinstance(value, str) else value
        for key in keys:
            if not key and isinstance(value, str):
                continue
            if problem := error(key):
                yield key_error(
                    path,
                    key,
                    problem,
                    kind,
                    in_map=isinstance(value, Mapping),
                )

    item = f"'\"' + {keys}.filter(k, !({cel}))[0] + '\": '"
    return Rule(
        message,
        f"{keys}.all(k, {cel})",
        error and check,
        kind,
        item=item,
    )


def key_error(
    path: str, key: str, problem: str, kind: ErrorKind, *, in_map: bool = False
) -> Problem:
    """What is wrong with a key. A forbidden one is part of the sentence."""
    if kind is ErrorKind.FORBIDDEN:
        return violation(
            path,
            kind,
            f"key {shorten(key)!r} {problem}",
            key=key,
        )
    return violation(
        path,
        kind,
        problem,
        key,
        key=key if in_map else None,
    )


def unique(
    name: str,
    message: str,
    *,
    attribute: str = "",
    item: str = "",
) -> Rule:
    """The field `name` of the items of a list is unique, if it is set."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        seen = set[str]()
        for index, item in enumerate(value):
            text = getattr(item, attribute or name)
            if text in seen:
                yield violation(
                    f"{path}[{index}].{name}",
                    ErrorKind.DUPLICATE,
                    message,
                    text,
                )
            elif text:
                seen.add(text)

    cel = (
        f"self.all(p, !has(p.{name}) || p.{name} == '' || "
        f"self.exists_one(q, has(q.{name}) && q.{name} == p.{name}))"
    )
    return Rule(
        f"{name} {message}",
        cel,
        check,
        ErrorKind.DUPLICATE,
        item=item,
    )


def literal(text: str) -> str:
    """A string of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
