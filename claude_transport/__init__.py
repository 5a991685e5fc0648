"""The transport layer between Python programs and Claude."""
