"""A link that outlives its connections: `machine` decides, and `carrier` brings the bytes."""
