"""What each node is to probe: the spec of one NodePodProbe per Node.

Never touches a NodePodProbe's status, which its daemon alone writes.
"""
