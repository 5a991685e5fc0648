"""One call, two paths: the CLI or the API, chosen and paid for knowingly."""
