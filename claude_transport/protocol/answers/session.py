"""Answers about the session as a whole."""

from __future__ import annotations

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Part

__all__ = [
    "BinaryVersion",
    "ConversationRewind",
    "CwdChange",
    "ExportedConversation",
    "ForkResult",
    "SessionTitle",
    "SideAnswer",
    "StatusInfo",
    "StatusRow",
    "StatusSection",
]


class BinaryVersion(Answer, rename="camel", frozen=True, kw_only=True):
    """Which CLI this is; `build_time` in ISO 8601. [08a]"""

    version: str = ""
    build_time: str = ""
    oldest_desktop_sdk: str | None = None


class StatusRow(Part, frozen=True, kw_only=True):
    """One fact, as text for people."""

    label: str = ""
    value: str = ""


class StatusSection(Part, frozen=True, kw_only=True):
    """Facts under one heading."""

    title: str = ""
    rows: tuple[StatusRow, ...] = ()


class StatusInfo(Answer, frozen=True, kw_only=True):
    """What `/status` shows, as text for people. [08a]"""

    sections: tuple[StatusSection, ...] = ()

    def value(self, label: str) -> str | None:
        """The value of the first row with this label (`Session ID`, `Model`, `cwd`, …), or None."""
        return next((row.value for section in self.sections for row in section.rows if row.label == label), None)


class ExportedConversation(Answer, frozen=True, kw_only=True):
    """The conversation as plain text, and what its file could be called. [08a]"""

    text: str = ""
    default_filename: str = ""


class ForkResult(Answer, frozen=True, kw_only=True):
    """Whether the conversation was forked: stream-json sessions answer success with `forked=False` and `reason="unsupported"`. [08a]"""

    forked: bool = False
    error: str | None = None
    reason: str | None = None


class SideAnswer(Answer, frozen=True, kw_only=True):
    """The model's answer to a question beside the conversation; `synthetic` when no model gave it. [08a]"""

    response: str | None = None
    synthetic: bool = False


class SessionTitle(Answer, frozen=True, kw_only=True):
    """A title made from a description."""

    title: str | None = None


class CwdChange(Answer, frozen=True, kw_only=True):
    """What came of a change of directory.

    `status` `ok`: the session is in `cwd`, `changed` says whether it was elsewhere before. `needs_trust`: nothing was done; ask the user
    whether `trust_root` is to be trusted, and repeat with this `directory` as `trusted_directory`. `rejected`: nothing was done, for
    `reason` (`busy` while a turn or hook is running), in words `message`.
    """

    status: str = ""
    cwd: str | None = None
    changed: bool = False
    transcript_relocated: bool | None = None
    directory: str | None = None
    trust_root: str | None = None
    reason: str | None = None
    message: str | None = None


class ConversationRewind(Answer, rename="camel", frozen=True, kw_only=True):
    """Whether the conversation was cut back to before a message; `prefill_text` is what that message said."""

    rewound: bool = False
    target_message_uuid: str | None = None
    prefill_text: str | None = None
    preceding_assistant_uuid: str | None = None
    error: str | None = None
    reason: str | None = None
