"""The daemon of one node: runs the probes in the spec of its NodePodProbe, and writes the results to the status.

Owns schedules, thresholds, results and their publication. Reads one object. Writes its status, events on pods and one
Lease. Must not know markers, Pod objects of the API server, or how results are used.
"""
