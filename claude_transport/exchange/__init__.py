"""One engine for conversations over a transport: lines go out and come in, requests wait for answers, and it ends in bounded time.

`client` builds Claude's `Query` on it, and `jsonrpc` the conversation of other agents. It knows no message of either.
"""
