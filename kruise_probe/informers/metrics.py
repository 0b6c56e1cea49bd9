"""Metrics of informers: lists, watches and objects that do not decode.

Source: none. client-go dropped its reflector metrics because of their cardinality.
Differs: one series per kind.
"""

from typing import Final

from prometheus_client import Counter

lists_total: Final = Counter(
    "kruise_probe_informer_lists_total",
    "Lists begun, streamed or in pages",
    ["informer"],
)
watches_total: Final = Counter(
    "kruise_probe_informer_watches_total",
    "Watch requests sent, those of streamed lists included",
    ["informer"],
)
undecodable_total: Final = Counter(
    "kruise_probe_informer_undecodable_total",
    "Versions of objects that did not decode",
    ["informer"],
)
