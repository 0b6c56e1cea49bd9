"""Error messages of the marker rules, one per rule.

The CRDs' CEL rules, the webhook and the daemon share these messages.
"""

from typing import Final

MORE_ERRORS: Final = "more errors are not listed; correct these first"
ITEMS_NOT_JUDGED: Final = (
    "the items, and what follows them, are not judged yet; there may be more errors"
)
KEY_PREFIX: Final = (
    "the part before '/' must be a DNS subdomain of at most 253 characters: "
    "lower case letters, digits, '-' and '.', such as example.com"
)
KEY_NAME: Final = (
    "the name must be 1 to 63 letters, digits, '-', '_' or '.', starting and ending with a "
    "letter or digit, such as MyName or example.com/my-name"
)
KEY: Final = (
    "a key is 1 to 63 letters, digits, '-', '_' or '.', starting and ending with a letter or digit, and may have "
    "a DNS subdomain and '/' before it, such as MyName or example.com/my-name"
)
LABEL_VALUE: Final = (
    "must be empty, or at most 63 letters, digits, '-', '_' or '.', starting and ending with "
    "a letter or digit"
)
SELECTOR_EMPTY: Final = "must select pods by at least one entry of matchLabels or matchExpressions"
SELECTOR_IMMUTABLE: Final = "field is immutable; create another PodProbeMarker for other pods"
VALUES_NEEDED: Final = "must be specified when `operator` is 'In' or 'NotIn'"
VALUES_EXCESS: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
PROBES_EMPTY: Final = "must hold at least one probe"
UNIQUE: Final = "must be unique in this marker"
UNIQUE_STATE: Final = "must be unique in this policy"
NAME_WITH_HASH: Final = "must not contain '#', which separates marker and probe in NodePodProbe"
RESULT_NOWHERE: Final = (
    "podConditionType or markerPolicy must be set, or the result would be written nowhere"
)
RESERVED_CONDITION: Final = "use one of your own, such as example.com/healthy"
POLICY_EMPTY: Final = "labels or annotations must be set"
OWN_SELECTOR_KEY: Final = (
    "occurs in this marker's own selector; writing it would change which pods match"
)
RESERVED_ANNOTATION: Final = "use a key of your own, such as example.com/healthy"
RESERVED_LABEL: Final = (
    f"{RESERVED_ANNOTATION}, or let an administrator allow it (--allowed-label-keys)"
)
DELETION_COST: Final = (
    "controller.kubernetes.io/pod-deletion-cost must be a 32bit integer without a plus sign or leading zeros, "
    "such as -10"
)
HANDLER_NEEDED: Final = "must specify a handler: exec, httpGet, tcpSocket or grpc"
HANDLER_EXCESS: Final = "may not specify more than 1 handler type"
COMMAND_TOO_LONG: Final = "must have at most 8192 bytes in all its words; put a longer script into the image or a ConfigMap"
COMMAND_NEEDED: Final = "must hold the program and its arguments"
HOST: Final = "probes go to the pod's own IP only; remove host, and send a Host header if the server needs one"
SCHEME: Final = "use HTTP or HTTPS"
MODE: Final = "use Plaintext or TLS"
HEADER_NAME: Final = (
    "a header's name consists of letters, digits, '-' or '_' (such as X-Header-Name)"
)
PORT_NAME: Final = (
    "must be a port number, or the name of a container port: at most 15 characters of a-z, 0-9 and "
    "single '-', with at least one letter"
)
