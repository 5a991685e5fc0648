"""Text from outside: on one line, without secrets, searched in slices; and one text format."""
