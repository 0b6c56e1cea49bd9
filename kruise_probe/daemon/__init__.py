"""The node's half: probes what the node's NodePodProbe names and reports the results in its status.

Owns schedules, thresholds, results and their publication; reads one object, writes its status, events on
pods and one Lease. Must not know markers, pods as the API server shows them, or what a result is good for.
"""
