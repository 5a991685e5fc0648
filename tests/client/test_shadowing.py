"""A permission callback that could never be called is refused before anything is started; what is kept from it in part is told."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from peers import ForeignTransport, answer_to

from claude_transport import (
    Allow,
    BillingPolicy,
    ClaudeOptions,
    CLINotFoundError,
    ConfigurationError,
    ControlRequestFailed,
    HookMatcher,
    Query,
    SubprocessTransport,
    TransportWrapper,
)
from claude_transport.client.shadowing import check_account, check_session_billing, find_shadows
from claude_transport.errors import ClaudeTransportWarning
from claude_transport.launch.settings import permission_settings
from claude_transport.protocol.control import AccountInfo, InitializationInfo
from claude_transport.transports import Client, PermissionSetting, SessionTerms

NOWHERE = "/nonexistent/claude"  # whatever is refused before the spawn never gets to look for it


async def allow(*_: object) -> Allow:
    return Allow()


async def hook(*_: object) -> None:
    return None


PRE_TOOL_USE = {"PreToolUse": [HookMatcher(None, [hook])]}


async def refused(query: Query) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        await query.start()
    assert not isinstance(caught.value, CLINotFoundError)
    assert "can_use_tool" in str(caught.value)
    return caught.value


async def passes(query: Query) -> None:
    with pytest.raises(CLINotFoundError):
        await query.start()


def over(options: dict[str, Any], **arguments: Any) -> Query:
    return Query(SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, **options)), can_use_tool=allow, **arguments)


ASK_ANYTHING = {"permissions": {"ask": ["Bash(git push *)"]}}
# what is said → which option is named in the refusal
WHOLE: list[tuple[dict[str, Any], str]] = [
    ({"permission_mode": "bypassPermissions"}, "permission_mode"),
    ({"permission_mode": "dontAsk"}, "permission_mode"),
    ({"permission_mode": "dontAsk", "settings": ASK_ANYTHING}, "permission_mode"),
    ({"dangerously_skip_permissions": True}, "dangerously_skip_permissions"),
    ({"dangerously_skip_permissions": True, "permission_mode": "default"}, "dangerously_skip_permissions"),
    ({"permission_prompt_tool_name": "mcp__guard__ask"}, "permission_prompt_tool_name"),
    ({"permission_prompts": "none"}, "permission_prompts"),
    ({"settings": {"permissions": {"defaultMode": "dontAsk"}}}, "settings"),
    ({"settings": '{"permissions": {"defaultMode": "bypassPermissions"}}'}, "settings"),
    ({"extra_args": {"permission-mode": "bypassPermissions"}}, "extra_args"),
    ({"extra_args": {"dangerously-skip-permissions": None}}, "extra_args"),
    ({"extra_args": {"permission-prompt-tool": "mcp__guard__ask"}}, "extra_args"),
    ({"extra_args": {"permission-prompts": "none"}}, "extra_args"),
]


@pytest.mark.parametrize(("options", "named"), WHOLE, ids=str)
async def test_what_leaves_nothing_to_ask_is_refused_by_name_before_anything_is_started(options: dict[str, Any], named: str) -> None:
    assert (await refused(over(options))).option == named
    await passes(Query(SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, **options))))  # without a callback nothing is shadowed


PARTIAL: list[tuple[dict[str, Any], str]] = [
    ({"allowed_tools": ["Bash(git *)"]}, "allowed_tools: Bash(git *)"),
    ({"settings": {"permissions": {"allow": ["WebFetch"]}}}, "settings: WebFetch"),
    ({"extra_args": {"allowedTools": "Edit"}}, "extra_args: Edit"),
    ({"permission_mode": "acceptEdits"}, "acceptEdits"),
    ({"permission_mode": "auto"}, "a classifier"),
    ({"permission_mode": "plan"}, "a classifier"),
    ({"permission_mode": "bypassPermissions", "settings": ASK_ANYTHING}, "bypassPermissions"),
    ({"agents": {"quiet": {"description": "d", "prompt": "p", "permissionMode": "dontAsk"}}}, "agents['quiet']"),
    ({"agents": {"free": {"description": "d", "prompt": "p", "permissionMode": "bypassPermissions"}}}, "agents['free']"),
    ({"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}, "sandbox"),
    ({"settings": {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}}, "settings: commands in the sandbox"),
]


@pytest.mark.parametrize(("options", "told"), PARTIAL, ids=str)
async def test_what_is_kept_from_it_in_part_is_one_warning(options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(ClaudeTransportWarning, match="can_use_tool is not asked about everything") as told_to_the_program:
        await passes(over(options))
    (warning,) = told_to_the_program
    assert told in str(warning.message)
    assert caplog.text == ""


async def test_the_warning_of_what_is_kept_from_it_holds_no_secret() -> None:
    with pytest.warns(ClaudeTransportWarning, match="Bash") as told:
        await passes(over({"allowed_tools": ["Bash(curl -H 'Authorization: Bearer 3f9d8a7b6c5e4f3a2b1c0d9e8f7a6b5c' *)"]}))
    assert "3f9d8a7b" not in str(told[0].message)


async def test_a_program_that_makes_the_warning_an_error_gets_a_typed_one_before_any_prompt() -> None:
    inner = Starts("acceptEdits")
    for transport in (Announces(inner), inner):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ClaudeTransportWarning)
            error = await refused(Query(transport, can_use_tool=allow))
        assert isinstance(error.__cause__, ClaudeTransportWarning)
        assert (error.code, error.retryable, inner.prompts()) == ("config.invalid", False, [])


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_a_hook_before_each_tool_may_still_ask_so_that_nothing_is_refused(mode: Any) -> None:
    with pytest.warns(ClaudeTransportWarning, match=mode):
        await passes(over({"permission_mode": mode}, hooks=PRE_TOOL_USE))
    assert (await refused(over({"permission_prompts": "none"}, hooks=PRE_TOOL_USE))).option == "permission_prompts"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"permission_mode": "default"},
        {"permission_mode": "manual", "settings": {"permissions": {"defaultMode": "bypassPermissions"}}},
        {"permission_prompt_tool_name": "stdio"},
        {"permission_prompts": "host"},
        {"allow_dangerously_skip_permissions": True},
        {"disallowed_tools": ["Bash"], "settings": {"permissions": {"deny": ["Read"]}}},
        {"allowed_tools": ["Bash"], "settings": {"permissions": {"ask": ["Bash"]}}},
        {"sandbox": {"enabled": True}},
        {"settings": {"permissions": "nonsense"}},
        {"settings": {"permissions": {"allow": "nonsense", "defaultMode": 3}}},
    ],
    ids=str,
)
async def test_what_shadows_nothing_passes_without_a_word(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    await passes(over(options))
    assert caplog.text == ""


async def test_subagents_of_the_query_count_like_those_of_the_options() -> None:
    agents = {"eager": {"description": "d", "prompt": "p", "permissionMode": "acceptEdits"}, "plain": {"description": "d", "prompt": "p"}}
    with pytest.warns(ClaudeTransportWarning) as told:
        await passes(over({}, agents=agents))
    (warning,) = told
    assert "agents['eager']" in str(warning.message)
    assert "plain" not in str(warning.message)


async def test_a_settings_file_is_looked_into(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"permissions": {"defaultMode": "dontAsk"}}', "utf-8")
    assert (await refused(over({"settings": file}))).option == "settings"
    file.write_text("not JSON", "utf-8")
    with pytest.raises(ConfigurationError, match="not JSON"):
        await Query(SubprocessTransport(ClaudeOptions(cli_path=sys.executable, settings=file)), can_use_tool=allow).start()


async def test_the_options_of_another_program_mean_nothing_to_it() -> None:
    transport = SubprocessTransport(ClaudeOptions(permission_mode="dontAsk"), command=["claude"])
    terms = transport.attach(Client(answers=frozenset({"can_use_tool"})))
    assert (
        msgspec.structs.replace(terms, on_prompt=None, on_failure=None, find_cli_version=None, hurry=None, at_once=None) == SessionTerms()
    )


async def test_it_is_seen_through_wrappers() -> None:
    inner = SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, permission_mode="dontAsk"))
    assert (await refused(Query(TransportWrapper(TransportWrapper(inner)), can_use_tool=allow))).option == "permission_mode"


# ------------------------------------------------------------------------------------------------- what the CLI itself says of it


class Starts(ForeignTransport):
    """Answers `initialize` with this permission mode."""

    def __init__(self, mode: str | None) -> None:
        super().__init__(answers=False, on_write=self.initialize)
        self.mode = mode

    def initialize(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "control_request":
            self.say(answer_to(frame, **({} if self.mode is None else {"current_permission_mode": self.mode})))


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_a_mode_that_the_users_own_settings_chose_fails_the_start_and_closes(mode: str) -> None:
    transport = Starts(mode)
    query = Query(transport, can_use_tool=allow)
    error = await refused(query)
    assert error.option == "permission_mode"
    assert "settings that the CLI found itself" in str(error)
    assert transport.prompts() == []
    assert "close" in transport.calls
    async with Query(Starts(mode)):
        pass
    with pytest.warns(ClaudeTransportWarning, match=mode):
        async with Query(Starts(mode), can_use_tool=allow, hooks=PRE_TOOL_USE):
            pass


@pytest.mark.parametrize("mode", [None, "default", "manual", "a mode of the future"])
async def test_any_other_mode_is_fine(mode: str | None, caplog: pytest.LogCaptureFixture) -> None:
    async with Query(Starts(mode), can_use_tool=allow):
        pass
    assert caplog.text == ""


async def test_a_mode_that_leaves_something_to_ask_is_a_warning() -> None:
    with pytest.warns(ClaudeTransportWarning, match="settings that the CLI found itself say so; .*acceptEdits"):
        async with Query(Starts("acceptEdits"), can_use_tool=allow):
            pass


class Older(ForeignTransport):
    """A CLI such as 2.1.191, which does not report its permission mode: `settings` is what it answers to `get_settings`."""

    def __init__(self, settings: dict[str, Any] | str, **initialization: Any) -> None:
        super().__init__(answers=False, on_write=self.answer)
        self.settings = settings
        self.initialization = {"pid": 5} | initialization

    def answer(self, frame: dict[str, Any]) -> None:
        if frame["type"] != "control_request":
            return
        if frame["request"]["subtype"] == "initialize":
            self.say(answer_to(frame, **self.initialization))
        elif isinstance(self.settings, str):
            failure = {"subtype": "error", "request_id": frame["request_id"], "error": self.settings}
            self.say({"type": "control_response", "response": failure})
        else:
            self.say(answer_to(frame, **self.settings))

    def requested(self) -> list[str]:
        return [frame["request"]["subtype"] for frame in self.written if frame["type"] == "control_request"]


def chose(mode: object) -> dict[str, Any]:
    return {"effective": {"permissions": {"defaultMode": mode}}}


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_an_older_cli_is_asked_for_the_mode_that_it_does_not_report(mode: str) -> None:
    transport = Older(chose(mode))
    error = await refused(Query(transport, can_use_tool=allow))
    assert (error.option, error.code, error.retryable) == ("permission_mode", "config.invalid", False)
    assert f"settings that the CLI found itself say so; the mode {mode}" in str(error)
    assert (transport.requested(), transport.prompts(), "close" in transport.calls) == (["initialize", "get_settings"], [], True)


@pytest.mark.parametrize("answer", ["Unsupported control request subtype: get_settings", {}, {"effective": []}], ids=str)
async def test_an_older_cli_that_does_not_tell_the_mode_fails_the_start(answer: Any) -> None:
    transport = Older(answer)
    error = await refused(Query(transport, can_use_tool=allow))
    assert (error.option, error.code) == ("permission_mode", "config.invalid")
    assert "set permission_mode" in str(error)
    assert (transport.prompts(), "close" in transport.calls) == ([], True)


@pytest.mark.parametrize("settings", [chose("default"), chose(3), {"effective": {}}, {"effective": {"permissions": 3}}], ids=str)
async def test_an_older_cli_whose_settings_choose_nothing_that_matters_is_fine(settings: dict[str, Any]) -> None:
    async with Query(Older(settings), can_use_tool=allow):
        pass


class Fixed(TransportWrapper):
    """A transport whose options choose the mode."""

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(permissions=[PermissionSetting("mode", "default", "permission_mode")])


async def test_settings_are_asked_for_only_when_they_can_matter() -> None:
    for query, transport in (
        (Query(a := Older(chose("dontAsk"))), a),
        (Query(Fixed(b := Older(chose("dontAsk"))), can_use_tool=allow), b),
        (Query(c := Older(chose("dontAsk"), current_permission_mode="default"), can_use_tool=allow), c),
        (Query(d := Older(chose("dontAsk"), pid=None), can_use_tool=allow), d),
    ):
        async with query:
            pass
        assert transport.requested() == ["initialize"]


class Announces(TransportWrapper):
    """A transport whose options say `acceptEdits`."""

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(permissions=[PermissionSetting("mode", "acceptEdits", "permission_mode")])


async def test_what_was_told_before_the_start_is_not_told_again() -> None:
    with pytest.warns(ClaudeTransportWarning) as told:
        async with Query(Announces(Starts("acceptEdits")), can_use_tool=allow):
            pass
    assert len(told) == 1


# --------------------------------------------------------------------------------------------------------------- the pure parts


def test_who_starts_the_session_in_a_mode_is_one_row() -> None:
    options = ClaudeOptions(
        permission_mode="plan", dangerously_skip_permissions=True, settings={"permissions": {"defaultMode": "acceptEdits"}}
    )
    assert [row for row in permission_settings(options) if row[0] == "mode"] == [
        ("mode", "bypassPermissions", "dangerously_skip_permissions")
    ]
    settings_only = ClaudeOptions(settings={"permissions": {"defaultMode": "acceptEdits"}})
    assert permission_settings(settings_only) == [("mode", "acceptEdits", "settings")]


def test_a_kind_of_setting_that_is_not_known_shadows_nothing() -> None:
    assert find_shadows([PermissionSetting("of the future", "x", "some_option")]) == []


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
def test_the_remedy_of_a_mode_is_told_where_it_is_refused_and_not_where_a_hook_may_ask(mode: str) -> None:
    setting = PermissionSetting("mode", mode, "permission_mode")
    (whole,), (part,) = find_shadows([setting]), find_shadows([setting], hooks=["PreToolUse"])
    assert (whole.whole, part.whole) == (True, False)
    assert whole.why.startswith(f"{part.why}: start in another mode")


@pytest.mark.parametrize(
    ("account", "told"),
    [
        (AccountInfo(api_provider="bedrock"), "claude would use bedrock, and that is paid by the cloud account"),
        (AccountInfo(token_source="ANTHROPIC_AUTH_TOKEN"), "claude would use ANTHROPIC_AUTH_TOKEN, and that is paid by the token owner"),
        (AccountInfo(api_key_source="apiKeyHelper"), "claude would use apiKeyHelper, and that is paid by the api account"),
    ],
)
def test_an_account_that_breaks_the_billing_policy_is_refused_with_its_payer(account: AccountInfo, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        check_account("subscription", account)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "billing")
    check_account("inherit", account)
    check_account("subscription", AccountInfo(api_provider="firstParty", api_key_source="none"))


async def billing_of(billing: BillingPolicy, settings: dict[str, Any] | Exception, *, pid: int | None = 1) -> int:
    """Check a session of a CLI that names no key. Returns how often its settings were asked for."""
    asked = 0

    async def ask() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await anyio.lowlevel.checkpoint()
        if isinstance(settings, Exception):
            raise settings
        return settings

    await check_session_billing(billing, InitializationInfo(pid=pid), ask_settings=ask)
    return asked


@pytest.mark.parametrize("billing", ["subscription", "subscription_strict"])
async def test_a_helper_that_has_not_given_its_key_yet_breaks_the_policy_of_a_subscription(billing: BillingPolicy) -> None:
    with pytest.raises(ConfigurationError, match="claude would use apiKeyHelper, and that is paid by the api account") as caught:
        await billing_of(billing, {"effective": {"apiKeyHelper": "echo key"}})
    assert (caught.value.code, caught.value.option) == ("config.invalid", "billing")
    assert await billing_of(billing, {"effective": {"model": "m"}}) == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"effective": None}, {"effective": ["apiKeyHelper"]}, ControlRequestFailed("no such request", subtype="get_settings")],
    ids=["nothing", "none", "a list", "refused"],
)
async def test_a_cli_that_does_not_tell_its_settings_cannot_keep_the_policy_of_a_subscription(settings: Any) -> None:
    with pytest.raises(ConfigurationError, match='billing="subscription" cannot be kept: this CLI does not say whether') as caught:
        await billing_of("subscription", settings)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "billing")


async def test_settings_are_asked_for_only_where_a_helper_would_break_the_policy() -> None:
    helper = {"effective": {"apiKeyHelper": "echo key"}}
    assert await billing_of("inherit", helper) == 0
    assert await billing_of("api_key", helper) == 0
    assert await billing_of("subscription", helper, pid=None) == 0
