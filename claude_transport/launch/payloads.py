"""What is too large or too secret for a command line, and how it travels: in a file that only its owner can read, or in `initialize`.

There are two deliveries. Both were observed to work on CLI 2.1.330 for every row of `PAYLOADS` (the table of features says since when):

* `files` (the default): one temporary file for each payload, named on the command line. It works also when no `initialize` is sent, so a
  transport without a `Query` does what these options say.
* `initialize`: everything in the `initialize` request. It is for a CLI on another machine (ssh, docker), which cannot see the files here.
  `initialize` must then be the first line, and MCP servers and settings need `--await-initialize`.

Files are only described here. A transport writes them with mode 0600 and removes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, Literal, TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.settings import agent_definitions, mcp_document, settings_document, to_json

Delivery: TypeAlias = Literal["files", "initialize"]

INLINE_SCHEMA_LIMIT: Final = 1_500  # characters; a longer JSON schema goes by `initialize.jsonSchema`, which no parser checks


class PlannedFile(msgspec.Struct, frozen=True):
    """A file to write (mode 0600) before the process starts and to remove after it ended. Its path becomes `flag=path` in argv."""

    flag: str
    suffix: str
    content: bytes

    def __repr__(self) -> str:
        """Leave out the content: it may hold secrets."""
        return f"PlannedFile({self.flag!r}, {self.suffix!r}, <{len(self.content)} bytes>)"


class PlannedDirectory(msgspec.Struct, frozen=True):
    """A private temporary directory (mode 0700) to make before the process starts. Its path becomes the environment variable `variable`."""

    variable: str


class Payload(msgspec.Struct, frozen=True):
    """One row: the option, the flag that takes a file with it, and the field of `initialize` that carries it instead."""

    option: str
    flag: str
    field: str
    doc: str
    note: str = ""


class InitializeField(msgspec.Struct, frozen=True):
    """One row: an option that only the `initialize` request can carry."""

    option: str
    field: str
    doc: str
    convert: Callable[[Any], Any] = lambda value: value
    note: str = ""


PAYLOADS: Final[tuple[Payload, ...]] = (
    Payload(
        "system_prompt",
        "--system-prompt-file",
        "systemPrompt",
        'The system prompt: text, or `{"type": "preset" | "custom" | "file", ...}`. None keeps the CLI\'s own, `""` sends none.',
    ),
    Payload("append_system_prompt", "--append-system-prompt-file", "appendSystemPrompt", "Text added to the end of the system prompt."),
    Payload(
        "append_subagent_system_prompt",
        "--append-subagent-system-prompt-file",
        "appendSubagentSystemPrompt",
        "Text added to the system prompt of every subagent.",
    ),
    Payload(
        "mcp_servers",
        "--mcp-config",
        "mcpServers",
        "MCP servers by name, or the path or text of an MCP configuration.",
        note="A path is passed on as it is. In-process servers belong to `Query(mcp_servers=...)`.",
    ),
    Payload("settings", "--settings", "settings", "More settings: a path, JSON text, or a mapping.", note="A path is passed on as it is."),
    Payload(
        "sandbox", "--settings", "settings", "Sandbox settings, merged into `settings` (which is then read and passed as one document)."
    ),
)


INITIALIZE_FIELDS: Final[tuple[InitializeField, ...]] = (
    InitializeField(
        "agents",
        "agents",
        "Subagents by name: description, prompt, tools, model and so on.",
        agent_definitions,
        note="Only CLI 2.1.294 and newer read them from a file, so a transport without a `Query` starts no agents.",
    ),
    InitializeField("skills", "skills", 'The skills to list; `"all"` lists every one. Also allows them.', list),
    InitializeField("plan_mode_instructions", "planModeInstructions", "Replaces the phases of the plan-mode reminder."),
    InitializeField("tool_aliases", "toolAliases", "Other names for tools.", dict, note="Declared, not exercised."),
    InitializeField(
        "agent_progress_summaries", "agentProgressSummaries", "Summaries of what subagents do.", note="Declared, not exercised."
    ),
    InitializeField("supported_dialog_kinds", "supportedDialogKinds", "Dialogs the host can show.", list, note="Declared, not exercised."),
    InitializeField(
        "per_task_stop_affordance", "perTaskStopAffordance", "The host can stop single tasks.", note="Declared, not exercised."
    ),
    InitializeField("title", "title", "Title of the session."),
    InitializeField(
        "managed_settings",
        "managedSettings",
        "Settings of the policy tier, which the session's user cannot override. A CLI that cannot use them ends before the first prompt.",
        dict,
        note="Adds `--await-initialize` and `--managed-settings-in-initialize`; start fails unless the CLI confirms them. "
        "On a machine with managed settings of its own, those decide whether these count.",
    ),
    InitializeField(
        "sdk_mcp_server_configs",
        "sdkMcpServerConfigs",
        "Settings of the MCP servers of this process, by name: `timeout` (milliseconds), `tools` (a permission policy for each).",
        lambda value: {name: dict(config) for name, config in value.items()},
        note="Needs CLI 2.1.330: 2.1.275 drops it without a word, so it is refused there.",
    ),
    InitializeField(
        "sdk_mcp_server_manifests",
        "sdkMcpServerManifests",
        "What these servers would answer to `initialize` and `tools/list`, by name: `initializeResult` and `toolsListResult`. "
        "The CLI then does not ask them.",
        lambda value: {name: dict(manifest) for name, manifest in value.items()},
        note="Needs CLI 2.1.330; the answer's `sdk_mcp_manifests_parked` says what became of each.",
    ),
    InitializeField(
        "sdk_mcp_server_manifests_origin",
        "sdkMcpServerManifestsOrigin",
        "`host_per_send`: the manifests were made for this session. Needed only over a remote session.",
        note="Declared, not exercised.",
    ),
)

ANNOUNCED: Final[Mapping[str, tuple[str, str]]] = {
    "managedSettings": ("--managed-settings-in-initialize", "managed_settings_applied"),
    "mcpServers": ("", "mcp_servers_applied"),
    "plugins": ("", "plugins_applied"),
    "settings": ("--initialize-fields=settings", "settings_applied"),
}
"""Fields that the CLI reads only with `--await-initialize` and the flag given here: field → (flag, confirmation).

The confirmation is the field of the answer that is true when they count. A CLI that does not know the field leaves it out.
"""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """How the payloads of some options travel: arguments, files to write, and fields of `initialize`."""

    arguments: tuple[str, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    initialize: dict[str, Any] = msgspec.field(default_factory=dict)


def path_argument(value: str | PathLike[str]) -> str:
    """Return `value` as the file argument of a flag, in a form that the CLI cannot take for inline JSON."""
    text = os.fspath(value)
    return f".{os.sep}{text}" if text.lstrip().startswith("{") else text


def schema_text(output_format: Mapping[str, Any]) -> str:
    """Return the JSON schema of an `output_format` as compact text."""
    return to_json(output_format["schema"], option="output_format").decode()


def prompt_parts(options: ClaudeOptions) -> tuple[str | None, str | None, str | None]:
    """Split `system_prompt` and `append_system_prompt` into (replacement text, path of the replacement, appended text)."""
    prompt, append = options.system_prompt, options.append_system_prompt
    if prompt is None or isinstance(prompt, str):
        return prompt, None, append
    kind = prompt.get("type")
    if kind == "custom":
        return prompt["prompt"], None, append
    if kind == "file":
        return None, os.fspath(prompt["path"]), append
    return None, None, append if append is not None else prompt.get("append")


def path_arguments(options: ClaudeOptions) -> list[str]:
    """Return the payload flags whose value is a file of the caller: they are plain arguments in either delivery."""
    paths = {
        "--system-prompt-file": prompt_parts(options)[1],
        "--mcp-config": mcp_document(options),
        "--settings": settings_document(options, permissions={}),
    }
    return [f"{flag}={path_argument(path)}" for flag, path in paths.items() if isinstance(path, str)]


def build_payloads(options: ClaudeOptions, *, delivery: Delivery, permissions: Mapping[str, list[str]]) -> Delivered:
    """Plan everything of `options` that is not an argument of its own. `permissions` are rules for which the command line had no room.

    Raises `ConfigurationError` for what cannot be written as JSON.
    """
    text, prompt_path, append = prompt_parts(options)
    servers = mcp_document(options)
    settings = settings_document(options, permissions=permissions)
    initialize = initialize_fields(options)
    documents: dict[str, Any] = {
        "system_prompt": text,
        "append_system_prompt": append,
        "append_subagent_system_prompt": options.append_subagent_system_prompt,
        "mcp_servers": None if isinstance(servers, str) else servers,
        "settings": None if isinstance(settings, str) else settings,
    }
    own_paths = {"--system-prompt-file": prompt_path, "--mcp-config": servers, "--settings": settings}
    arguments = [f"{flag}={path_argument(path)}" for flag, path in own_paths.items() if isinstance(path, str)]
    rows = [row for row in PAYLOADS if documents.get(row.option) is not None]
    if delivery == "initialize":
        initialize |= _as_fields(rows, documents)
        return Delivered(arguments=tuple(arguments), initialize=initialize)
    files = tuple(_as_file(row, documents[row.option]) for row in rows if row.field not in initialize)
    return Delivered(arguments=tuple(arguments), files=files, initialize=initialize)


def initialize_fields(options: ClaudeOptions) -> dict[str, Any]:
    """Return the fields of `initialize` that have no other way, or were asked to go this way, and a JSON schema too long for the command
    line.
    """
    fields: dict[str, Any] = {}
    for row in INITIALIZE_FIELDS:
        value = getattr(options, row.option)
        if value is None or value is False or value in ((), {}) or (row.option == "skills" and value == "all"):
            continue
        fields[row.field] = row.convert(value)
    servers = mcp_document(options) if options.mcp_servers_delivery == "initialize" else None
    if isinstance(servers, dict):
        to_json(servers, option="mcp_servers")
        fields["mcpServers"] = servers["mcpServers"]
    if options.plugins and options.plugin_delivery == "initialize":
        fields["plugins"] = [{**plugin, "path": os.fspath(plugin["path"])} for plugin in options.plugins]
    if options.output_format is not None and len(schema_text(options.output_format)) > INLINE_SCHEMA_LIMIT:
        fields["jsonSchema"] = dict(options.output_format["schema"])
    return fields


def _as_file(row: Payload, document: Any) -> PlannedFile:
    if isinstance(document, str):
        try:
            return PlannedFile(row.flag, ".txt", document.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"{row.option} holds a lone surrogate, which is no text: {error.reason}", option=row.option) from None
    return PlannedFile(row.flag, ".json", to_json(document, option=row.option))


def _as_fields(rows: list[Payload], documents: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for row in rows:
        document = documents[row.option]
        to_json(document, option=row.option)
        # newer CLIs declare a list of texts for systemPrompt, but 2.1.92 ignores one; all of them take text
        fields[row.field] = document["mcpServers"] if row.option == "mcp_servers" else document
    return fields
