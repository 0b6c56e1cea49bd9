"""From events to keys: everything that can change an answer asks for it again, and nothing else does.

Each handler first lets `Caches` follow, then compares before and after, and queues what the difference
concerns: at LOW and staggered what comes with the initial list, at HIGH changed results, else at NORMAL.

Source: Kruise pkg/controller/{podprobemarker,nodepodprobe}/*_event_handler.go.
Differs: labels, deletions, phases and started containers count there not at all, here both ways.
"""
