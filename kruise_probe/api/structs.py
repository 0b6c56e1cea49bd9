"""The base of structs of the wire."""

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Names in camel case; a field with its default is absent. `gc=False` is safe: they are trees without cycles."""
