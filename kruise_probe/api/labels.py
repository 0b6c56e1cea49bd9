"""Validation of label keys, label values and annotation keys: each function returns an error message or None.

Source: apimachinery pkg/util/validation IsQualifiedName, IsValidLabelValue; pkg/api/validation ValidateAnnotations.
Differs: error messages describe the rule in words instead of showing the regular expression.
"""

import re

from kruise_probe.api import remedies

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")

MAX_NAME_PART = 63
MAX_PREFIX = 253


def label_key_error(key: str) -> str | None:
    """Validate a qualified name: `name` or `dns.prefix/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return remedies.KEY_PREFIX
    if len(name) > MAX_NAME_PART or not _NAME.fullmatch(name):
        return remedies.KEY_NAME
    return None


def annotation_key_error(key: str) -> str | None:
    """Validate as a label key, but allow upper case in the prefix: the API server lower-cases it first."""
    return label_key_error(key.lower() if key.isascii() else key)


def label_value_error(value: str) -> str | None:
    """Validate a label value: empty, or at most 63 characters with the syntax of a key name."""
    if value and (len(value) > MAX_NAME_PART or not _NAME.fullmatch(value)):
        return remedies.LABEL_VALUE
    return None
