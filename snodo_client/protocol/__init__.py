"""The Model Context Protocol as pure functions and values.

What messages look like, what they mean and what may follow them lives here. No threads, clocks, sockets, files
or logging: everything in this package can be tested with plain values, and runs the same under every transport.
"""
