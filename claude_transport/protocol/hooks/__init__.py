"""Hooks on the wire: the inputs of all hook events (`inputs`), the answers (`outputs`), and the names of the events (`events`).

`parse_hook_input` reads the input of an event. `encode_hook_output` writes an answer, and refuses one that the CLI would ignore without a
word: a guard whose "deny" is misspelt would otherwise let the tool run. `claude_transport.hooks` lists the public names.
"""
