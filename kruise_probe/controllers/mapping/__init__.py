"""Event handlers that map events to keys. An event enqueues exactly the keys whose reconcile it can change.

Each handler first updates `Caches`, then compares the old and the new object, and enqueues the keys that the
difference affects. Keys of the initial list are enqueued at LOW priority and spread over time, changed results at
HIGH, and everything else at NORMAL.

Source: Kruise pkg/controller/{podprobemarker,nodepodprobe}/*_event_handler.go.
Differs: Kruise ignores changes of labels, deletions, phases and started containers; these handlers compare them.
"""
