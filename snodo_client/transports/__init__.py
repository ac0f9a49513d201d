"""The ways bytes and messages travel: one module per kind of connection, and the framings they share.

A transport moves messages and reports what happened to them. What a message means is decided in
`snodo_client.protocol`, who waits for it in `snodo_client.engine`. Modules here import their third-party
libraries lazily, so that a script pays only for the transport it uses.
"""
