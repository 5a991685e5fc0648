"""`Compatibility`: what the CLI of one conversation can do. It refuses what this CLI would drop or misread.

The table of features and their versions is in `launch.features`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from claude_transport.client.connection import Connection
from claude_transport.errors import CLIVersionMismatch, ConfigurationError, ControlRequestFailed
from claude_transport.launch.features import LIMITED_REQUESTS, check_range, find_feature, first_lacking, require
from claude_transport.launch.payloads import ANNOUNCED
from claude_transport.protocol.control import InitializationInfo
from claude_transport.protocol.conversation import Conversation

_FIRST_WITH_VERSION, _LAST_WITHOUT_VERSION = "2.1.308", "2.1.307"
"""The first CLI that says its version in the answer to `initialize`, and the last one that does not."""

_OPTIONS = {"managedSettings": "managed_settings", "mcpServers": "mcp_servers"}
"""The options behind fields of `initialize`, where they have another name."""

_UNSUPPORTED = "Unsupported control request subtype"


class Compatibility:
    """Knows the version and the capabilities of the CLI, as far as they can be known.

    Args:
        connection: its transport may know the version, or can find it out.
        conversation: keeps the capabilities that the CLI names at the start of each turn.
    """

    def __init__(self, connection: Connection, conversation: Conversation) -> None:
        self._connection = connection
        self._conversation = conversation
        self._named: Collection[str] = ()
        self.version: str | None = None
        """The version of the CLI; None before its answer to `initialize`, and when it cannot be found out."""

    async def check_start(self, initialization: InitializationInfo, *, fields: Mapping[str, Any], of_options: Mapping[str, Any]) -> None:
        """Check the answer to `initialize`, before any prompt is sent.

        Args:
            initialization: the answer.
            fields: all fields of the request. The CLI must be new enough for each.
            of_options: those that options of the transport asked for. The CLI must confirm that it applies them.

        Raises:
            CLIVersionMismatch: the CLI is too old, or lacks what one of the fields asks for.
            ConfigurationError: it does not confirm a field; rules or servers would be missing.
        """
        _check_applied(initialization, of_options)
        self._named = initialization.capabilities
        said = initialization.claude_code_version
        if said is None and not _is_of_a_cli(initialization):  # another program is not asked for a version
            self.version = self._connection.info.cli_version
        else:
            self.version = await self._connection.find_cli_version(said=said)
        check_range(self.version)
        hooks = fields.get("hooks")
        events = hooks if isinstance(hooks, Mapping) else ()
        names = [*(f"initialize.{name}" for name in fields), *(f"hook.{event}" for event in events)]
        self._require(*names)
        if self.version is None and _is_of_a_cli(initialization):
            self._refuse_what_is_newer(names)

    def _refuse_what_is_newer(self, names: Iterable[str]) -> None:
        """Raise `CLIVersionMismatch` for what needs a CLI that says its version. This one does not, and would drop the field silently."""
        feature = first_lacking(names, version=_LAST_WITHOUT_VERSION)
        if feature is not None:
            raise CLIVersionMismatch(
                f"this claude (of unknown version, but older than {_FIRST_WITH_VERSION}) does not know {feature.name}, "
                f"which {feature.use} needs: update claude to {feature.since} or newer, or do without",
                flag=feature.name,
            )

    def check_request(self, subtype: str, fields: Iterable[str]) -> None:
        """Check that the CLI knows a control request and its fields, as far as its version is known.

        Raises:
            CLIVersionMismatch: `flag` is the subtype, or `<subtype>.<field>`.
        """
        if subtype in LIMITED_REQUESTS:
            self._require(subtype, *(f"{subtype}.{name}" for name in fields))

    def check_verbatim_prompt(self, content: str | Sequence[Mapping[str, Any]]) -> None:
        """Check that the CLI can take this prompt as plain text.

        An older CLI runs a text that begins with `/` as a command, and reads the files named by `@path`.

        Raises:
            CLIVersionMismatch: `flag` is `prompt.client_composed`.
        """
        if _is_composed(content):
            self._require("prompt.client_composed")

    def explained(self, error: ControlRequestFailed, *, subtype: str) -> ControlRequestFailed | CLIVersionMismatch:
        """Return `error`, or `CLIVersionMismatch` when it means that the CLI is too old for the request."""
        is_unknown = error.error_code == "unsupported_request" or str(error).startswith(_UNSUPPORTED)
        feature = find_feature(subtype) if is_unknown else None
        if feature is None:
            return error
        return CLIVersionMismatch(
            f"this claude ({self.version or 'of unknown version'}) does not know {feature.name}, which {feature.use} needs: "
            f"update claude to {feature.since} or newer, or do without",
            flag=feature.name,
            version=self.version,
        )

    def _require(self, *names: str) -> None:
        require(*names, version=self.version, capabilities={*self._named, *self._conversation.capabilities})


def _check_applied(initialization: InitializationInfo, of_options: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for a CLI that does not confirm a field. A peer that reports no `pid` is no CLI, and confirms nothing."""
    if initialization.pid is None:
        return
    for field, (_, confirmation) in ANNOUNCED.items():
        if of_options.get(field) and getattr(initialization, confirmation) is not True:
            version = initialization.claude_code_version or "of unknown version"
            message = f"claude {version} does not apply {field} of initialize ({confirmation} is not true); use a newer CLI, or argv"
            raise ConfigurationError(message, option=_OPTIONS.get(field, field))


def _is_composed(content: str | Sequence[Mapping[str, Any]]) -> bool:
    """Return True when an old CLI would find a command or a path in a text of this content."""
    texts = [content] if isinstance(content, str) else [block.get("text") for block in content if isinstance(block, Mapping)]
    return any(isinstance(text, str) and ("@" in text or text.lstrip().startswith("/")) for text in texts)


def _is_of_a_cli(initialization: InitializationInfo) -> bool:
    """Return True when a CLI gave this answer: 2.1.19 lists its commands and models, and newer ones also report their process id."""
    return initialization.pid is not None or bool(initialization.commands or initialization.models)
