"""The test kit: an API server for the tests of a controller, and a pytest plugin with its fixtures.

The server is the playground's. It runs in a thread of its own, so that tests may be synchronous or asynchronous and use any client.
"""
