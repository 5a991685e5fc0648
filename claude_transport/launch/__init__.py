"""What would be run: argv, environment, files and the `initialize` fields, from one options Struct. Nothing here spawns anything.

```text
ClaudeOptions ──validation──> argv · environ · payloads · settings ──> Launch ──> (the transport writes the files and spawns)
                                                   discovery · windows · credentials: facts about the machine, as data
```

Floor 1: no event loop, no protocol, only the standard library and msgspec. The modules are imported by name; the package exports nothing.
"""
