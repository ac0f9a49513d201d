"""JSON Schemas and shapes that decide what may be sent or shown, as pure functions over values.

Here stand elicitation forms, sampling messages, and the checking of values against schemas of servers. Nothing here
runs handlers, waits, or fetches anything.
"""
