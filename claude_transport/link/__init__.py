"""A link that outlives its connections: `machine` decides, `carrier` brings the bytes, and `session` is the server's end."""
