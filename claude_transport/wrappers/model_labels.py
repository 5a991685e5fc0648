"""`model_label`: the name of a model as a label of a metric, where a peer must not put whatever it likes."""

from __future__ import annotations

import re
from typing import Final

from claude_transport.protocol.redaction import Redactor

__all__ = ["OTHER_MODEL", "model_label"]

OTHER_MODEL: Final = "other"
"""In place of what is no name."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
"""What models are called: `claude-opus-5-5[1m]`, and by Bedrock `arn:aws:bedrock:us-east-1:…:inference-profile/…`."""

_redact: Final = Redactor().text


def model_label(name: str) -> str:
    """`name`, or `OTHER_MODEL` for what does not look like the name of a model, or looks like a secret."""
    return name if _NAME.fullmatch(name) and _redact(name) == name else OTHER_MODEL
