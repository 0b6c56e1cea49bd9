"""HTTP/1.1 and TLS over asyncio, for clients, servers and probes: parsers and streams that know no request and no clock.

What a peer may send is a parameter of the one who reads it.
"""
