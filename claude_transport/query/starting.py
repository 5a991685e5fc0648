"""`Starting`: how a conversation begins: the `initialize` request, its answer, and what those who wait for it are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from claude_transport.background import BackgroundTask
from claude_transport.errors import (
    ClaudeTransportError,
    ConfigurationError,
    ConnectTimeout,
    ControlRequestFailed,
    ControlTimeout,
    TransportClosed,
)
from claude_transport.launch.payloads import ANNOUNCED
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.query.compatibility import Compatibility
from claude_transport.query.connection import Connection
from claude_transport.query.endings import raised_again
from claude_transport.query.life import Life
from claude_transport.query.mcp_configuration import check_change
from claude_transport.query.payer import check_account
from claude_transport.query.questions import Questions
from claude_transport.query.requests import PendingRequest, Requests
from claude_transport.query.shadowing import Shadowing
from claude_transport.query.storage import Storage

__all__ = ["Starting"]

_OPTIONS = {"managedSettings": "managed_settings", "mcpServers": "mcp_servers"}


class Starting:
    """The beginning of one conversation.

    Args:
        fields: of the `initialize` request; they win over those that the transport's options ask for.
        timeout: seconds for connecting, again for the answer to `initialize`, and again for MCP servers to be connected.
    """

    def __init__(
        self,
        life: Life,
        connection: Connection,
        conversation: Conversation,
        requests: Requests,
        storage: Storage,
        questions: Questions,
        *,
        fields: Mapping[str, Any],
        timeout: float,
    ) -> None:
        self._life = life
        self._connection = connection
        self._requests = requests
        self._storage = storage
        self._questions = questions
        self._shadowing = Shadowing(
            guarded="can_use_tool" in questions.kinds, hooks=questions.hook_config or (), agents=fields.get("agents")
        )
        self._fields = dict(fields)
        self.compatibility: Compatibility = Compatibility(connection, conversation)
        self.timeout = timeout
        self.initialization: InitializationInfo | None = None
        """The answer, once there is one."""

    async def start(self, live: Callable[[], Awaitable[object]]) -> None:
        """Begin to `live` in a task of its own, and return when it is ready; as `Query.start()`."""
        life = self._life
        life.refuse_elsewhere()
        if life.close_requested.is_set() and life.start_error is None:
            raise TransportClosed("the query is closed")
        task = life.begin(live, name="claude query")
        try:
            await self._begun(task)
        except Exception:
            raise
        except BaseException as exc:  # a cancellation, or a Ctrl-C, which may come in any line: the caller has no query to close
            life.close_requested.set()
            task.cancel()
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                await task.join()
            raise

    async def _begun(self, task: BackgroundTask) -> None:
        """Return when the query is ready; raise what its start has failed with."""
        life = self._life
        if life.ready.is_set() and life.start_error is None:
            return
        await life.ready.wait()
        if life.start_error is not None:
            await task.join()
            raise raised_again(life.start_error)

    def announce(self) -> None:
        """Tell the transport what will be answered, before it is connected.

        Raises:
            ConfigurationError: it is too late for that, or what was asked for leaves nothing to answer.
        """
        self._connection.announce(answers=self._questions.kinds)
        self._shadowing.check_settings(self._connection.terms.permissions)

    def brief(self, conversation: Conversation) -> None:
        """Tell `conversation` what the options of the transport and the fields of `initialize` ask of it."""
        terms = self._connection.terms
        structured_output = terms.structured_output or self._all_fields.get("jsonSchema") is not None
        conversation.expect(session_id=terms.session_id, fork=terms.forks_session, structured_output=structured_output)

    @property
    def cli_name(self) -> str:
        """The CLI and its version, for people."""
        answered = None if self.initialization is None else self.initialization.claude_code_version
        version = answered or self._connection.info.cli_version
        return "a CLI of unknown version" if version is None else f"CLI {version}"

    @property
    def blocks_on_failure(self) -> bool:
        """True when the CLI itself stops what a hook guards when it cannot ask that hook."""
        return self.initialization is not None and self.initialization.hook_on_failure_supported is True

    @property
    def _all_fields(self) -> dict[str, Any]:
        of_options, own = self._connection.terms.initialize, self._fields
        fields = {**of_options, **own}
        if of_options.get("agents") and own.get("agents"):
            fields["agents"] = {**of_options["agents"], **own["agents"]}
        return fields

    def prepare(self) -> PendingRequest:
        """The `initialize` request, with the terms of the transport; `UsageError` when its fields are no JSON."""
        return self._requests.prepare("initialize", self._all_fields)

    async def finish(self, initialize: PendingRequest) -> None:
        """Wait for the answer, and tell everybody who waits for it."""
        try:
            with self._storage.needing_input(initialize.is_open):
                response = await self._requests.answer_to(initialize, timeout=self.timeout)
            initialization = InitializationInfo.from_payload(response.payload)
            self._check_applied(initialization)
            await self.compatibility.check_start(initialization, fields=self._all_fields)
            parked = (initialization.sdk_mcp_manifests_parked or {}).items()
            self._questions.mcp.parked = frozenset(name for name, state in parked if state == "parked")
            check_account(self._connection.terms.billing, initialization.account)
            self._shadowing.check_mode(initialization.current_permission_mode or await self._configured_mode(initialization))
            asked = bool(self._all_fields.get("hooks"))
            self._questions.check_hooks(initialization, version=self.compatibility.version, asked=asked)
            await self._set_servers()
        except ControlTimeout as exc:
            message = f"no answer to {exc.subtype} in {exc.waited:g} s"
            timeout = ConnectTimeout(message, waited=exc.waited, stderr_tail=self._connection.info.stderr_tail)
            timeout.__cause__ = exc
            self._life.fail_start(timeout)
        except ClaudeTransportError as exc:
            self._life.fail_start(exc)
        else:
            self.initialization = initialization
            self._life.ready.set()

    def _check_applied(self, initialization: InitializationInfo) -> None:
        """Refuse a CLI that does not confirm what its transport's options sent by `initialize`: rules and servers would be missing.

        A peer that reports no `pid` is no CLI, and confirms nothing.

        Raises:
            ConfigurationError: names the field and the remedy.
        """
        if initialization.pid is None:
            return
        for field, (_, confirmation) in ANNOUNCED.items():
            if self._connection.terms.initialize.get(field) and getattr(initialization, confirmation) is not True:
                version = initialization.claude_code_version or "of unknown version"
                message = f"claude {version} does not apply {field} of initialize ({confirmation} is not true); use a newer CLI, or argv"
                raise ConfigurationError(message, option=_OPTIONS.get(field, field))

    async def _configured_mode(self, initialization: InitializationInfo) -> str | None:
        """Ask a CLI that does not report its permission mode which one its settings chose; None when it cannot matter.

        CLI 2.1.257 and newer report `current_permission_mode`; 2.1.92 and 2.1.191 do not, but answer `get_settings`. Each of them reports
        its `pid`; a peer without one is no CLI, and has no settings.

        Raises:
            ConfigurationError: the CLI does not tell, so that `can_use_tool` might never be called.
        """
        if initialization.pid is None or not self._shadowing.mode_is_open:
            return None
        request = self._requests.prepare("get_settings", {})
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                response = await self._requests.answer_to(request, timeout=self.timeout)
            except ControlRequestFailed as exc:
                raise _unknown_mode(str(exc)) from exc
        effective = response.payload.get("effective")
        if not isinstance(effective, Mapping):
            raise _unknown_mode("its settings have no effective values")
        permissions = effective.get("permissions")
        mode = permissions.get("defaultMode") if isinstance(permissions, Mapping) else None
        return mode if isinstance(mode, str) else None

    async def _set_servers(self) -> None:
        """Have the CLI connect to the MCP servers that the query was given configurations of, so that the first prompt has their tools.

        The fields of `initialize` could name them, too, but are heeded only by a CLI that was started with `--await-initialize`; this way
        works over any transport. The answer comes when every server is connected, or has failed (CLI 2.1.329, real).
        """
        servers = self._questions.mcp.dynamic
        if not servers:
            return
        request = self._requests.prepare("mcp_set_servers", {"servers": servers})
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                response = await self._requests.answer_to(request, timeout=self.timeout)
            except ControlRequestFailed as exc:
                message = f"MCP servers could not be set ({', '.join(servers)}): {exc}"
                raise ControlRequestFailed(message, subtype=exc.subtype, request_id=exc.request_id, error_code=exc.error_code) from exc
        check_change(McpServersChange.from_payload(response.payload))


def _unknown_mode(why: str) -> ConfigurationError:
    message = (
        f"can_use_tool might never be called: the CLI does not tell which permission mode its settings chose ({why}); set permission_mode"
    )
    return ConfigurationError(message, option="permission_mode")
