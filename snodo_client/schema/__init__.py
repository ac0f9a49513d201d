"""JSON Schemas and shapes that decide what may be sent or shown, as pure functions over values.

Here stand elicitation forms and sampling messages. Nothing here runs handlers, waits, or fetches anything.
"""
