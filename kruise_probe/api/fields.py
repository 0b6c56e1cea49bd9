"""Declares a field of our kinds once, where it is defined: its meaning, its bounds and its rules.

    class HTTPGetAction(msgspec.Struct):
        # In the docstring, below "Attributes:" -- path: Path of the request.
        path: Annotated[str | None, Field(most=4096, rules=(NO_CONTROLS,))] = None

The CRDs' schemas with their CEL rules derive from it (`manifests.crds`), and from these the reference and lint; so does
validation (`errors_in`). msgspec ignores it: an object that breaks a rule still decodes.

Source: apiextensions/v1 JSONSchemaProps and ValidationRule.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from kruise_probe.api.problems import ErrorKind, Problem, shorten, violation

Check = Callable[[Any, str], Iterable[Problem]]


class Rule(NamedTuple):
    """A rule of a value, for the API server and in Python.

    Attributes:
        cel: over `self`, with what Kubernetes 1.30 has (no `format` library, no two-variable macros). Empty if CEL cannot check it.
        check: the errors of a value at a path. None if they depend on more than the value: `api.validation` finds these.
        kind: of the error; for the API server only REQUIRED and FORBIDDEN.
        field: the field of the value that the rule is about.
        item: a CEL expression for the name of an item, in front of the message.
        admission_only: a stored object that breaks the rule is used nevertheless.
    """

    message: str
    cel: str
    check: Check | None = None
    kind: ErrorKind = ErrorKind.INVALID
    field: str = ""
    item: str = ""
    admission_only: bool = False


class Field(NamedTuple):
    """What Kubernetes and users know about a field, beside its name and type.

    Attributes:
        least, most: bounds of a number, or of the number of characters, items or entries. A text or list with `least` is required.
        values: the allowed ones; the empty one counts as absent.
        required: also if its type allows None, because Kruise's CRD does.
        open: the API server stores it as it is, because a closed schema costs it CPU.
        schema: further parts of the schema.
    """

    least: int | None = None
    most: int | None = None
    values: tuple[str, ...] = ()
    default: str | None = None
    required: bool = False
    open: bool = False
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] = {}


class Shape(NamedTuple):
    """A type with its declarations.

    Attributes:
        kind: `string`, `integer`, `boolean`, `port`, `array`, `map` or `object`.
        items: of a list, or the values of a map.
        properties: of an object, by attribute.
        name, text, required: of a property: its name on the wire, its description, and whether it must be present.
    """

    kind: str
    field: Field
    items: "Shape | None" = None
    properties: Mapping[str, "Shape"] = {}
    name: str = ""
    text: str = ""
    required: bool = False


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    """The shape of a struct. The class variables `RULES` of it and its bases have the rules of all of its values."""
    return _shape(struct, Field())


def _shape(annotation: Any, field: Field) -> Shape:
    if get_origin(annotation) is Annotated:
        annotation, field = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        options = [each for each in get_args(annotation) if each is not NoneType]
        if len(options) == 2:
            return Shape("port", field)
        return _shape(options[0], field)
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return Shape("array", field, _shape(arguments[0], Field()))
    if arguments:
        return Shape("map", field, _shape(arguments[1], Field()))
    if issubclass(annotation, msgspec.Struct):
        rules = (rule for base in annotation.__mro__ for rule in vars(base).get("RULES", ()))
        field = field._replace(rules=(*rules, *field.rules))
        return Shape("object", field, properties=_properties(annotation))
    return Shape({int: "integer", bool: "boolean"}.get(annotation, "string"), field)


def _properties(struct: type[msgspec.Struct]) -> Mapping[str, Shape]:
    hints = get_type_hints(struct, include_extras=True)
    texts = _texts(struct)
    found = {}
    for each in msgspec.structs.fields(struct):
        shape = _shape(hints[each.name], Field())
        found[each.name] = shape._replace(
            name=each.encode_name,
            text=texts.get(each.name, ""),
            required=each.required or shape.field.required,
        )
    return found


_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def _texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The description of each attribute, from the docstrings."""
    texts: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        _, _, section = cleandoc(vars(base).get("__doc__") or "").partition("Attributes:\n")
        texts |= {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}
    return texts


def errors_in(value: Any, shape: Shape, path: str, *, stored: bool = False) -> Iterator[Problem]:
    """The broken bounds and rules of a value and of everything in it, lazily.

    `stored` leaves out what a stored object may break: upper bounds of texts and lists (`CEL_BOUNDS`), and rules of admission.
    """
    field = shape.field
    if value is None:
        if field.required:
            yield violation(path, ErrorKind.REQUIRED, "must be set")
        return
    yield from _bound_errors(value, shape, path, stored=stored)
    if field.values and value not in field.values:
        known = ", ".join(f'"{each}"' for each in field.values if each)
        yield violation(path, ErrorKind.NOT_SUPPORTED, f"supported values: {known}", value)
    for rule in field.rules:
        if rule.check is not None and not (stored and rule.admission_only):
            yield from rule.check(value, path)
    for attribute, each in shape.properties.items():
        at = f"{path}.{each.name}" if path else each.name
        yield from errors_in(getattr(value, attribute), each, at, stored=stored)
    if shape.items is not None:
        entries = value.items() if shape.kind == "map" else enumerate(value)
        for key, item in entries:
            yield from errors_in(item, shape.items, f"{path}[{shorten(str(key))}]", stored=stored)


def _bound_errors(value: Any, shape: Shape, path: str, *, stored: bool) -> Iterator[Problem]:
    least, most = shape.field.least or 0, shape.field.most
    if isinstance(value, int):
        if most is not None and not least <= value <= most:
            detail = f"must be between {least} and {most}, inclusive"
            yield violation(path, ErrorKind.INVALID, detail, value)
    elif shape.kind in ("object", "port"):
        return
    elif len(value) < least:
        yield violation(path, ErrorKind.REQUIRED, "must not be empty")
    elif most is not None and len(value) > most and not stored:  # the kinds of CEL_BOUNDS
        if isinstance(value, str):
            detail = f"may not be more than {most} characters"
            yield violation(path, ErrorKind.TOO_LONG, detail)
        else:
            yield violation(path, ErrorKind.TOO_MANY, f"must have at most {most} items", len(value))


def rule(
    message: str,
    cel: str,
    holds: Callable[[Any], object],
    *,
    kind: ErrorKind = ErrorKind.INVALID,
    field: str = "",
    admission_only: bool = False,
) -> Rule:
    """A rule with one error: `holds` is false."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not holds(value):
            shown = value if kind is ErrorKind.INVALID and isinstance(value, str) else None
            yield violation(f"{path}.{field}" if field else path, kind, message, shown)

    return Rule(message, cel, check, kind, field, admission_only=admission_only)


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
        for key in filter(None, [value]) if isinstance(value, str) else value:
            if problem := error(key):
                yield key_error(path, key, problem, kind, in_map=isinstance(value, Mapping))

    item = f"'\"' + {keys}.filter(k, !({cel}))[0] + '\": '"
    return Rule(message, f"{keys}.all(k, {cel})", error and check, kind, item=item)


def key_error(
    path: str, key: str, problem: str, kind: ErrorKind, *, in_map: bool = False
) -> Problem:
    """What is wrong with a key. A forbidden one is part of the sentence."""
    if kind is ErrorKind.FORBIDDEN:
        return violation(path, kind, f"key {shorten(key)!r} {problem}", key=key)
    return violation(path, kind, problem, key, key=key if in_map else None)


def unique(name: str, message: str, *, attribute: str = "", item: str = "") -> Rule:
    """The field `name` of the items of a list is unique, if it is set."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        seen = set[str]()
        for index, item in enumerate(value):
            text = getattr(item, attribute or name)
            if text in seen:
                yield violation(f"{path}[{index}].{name}", ErrorKind.DUPLICATE, message, text)
            elif text:
                seen.add(text)

    cel = (
        f"self.all(p, !has(p.{name}) || p.{name} == '' || "
        f"self.exists_one(q, has(q.{name}) && q.{name} == p.{name}))"
    )
    return Rule(f"{name} {message}", cel, check, ErrorKind.DUPLICATE, item=item)


def literal(text: str) -> str:
    """A string of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
