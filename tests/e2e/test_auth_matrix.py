"""On the real binary, or without it: four states of authentication, three choices; and what arrives where, cell by cell.

The API sees which credential came, and from whom; `/proc` shows what the binary was given: exactly the environment and the arguments that
were promised, and no secret among the arguments.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import beyond_probes

import claude_transport as ct
from claude_transport.completion.resolution import CHOICES, MATRIX, AvailableMeans, TransportChoice
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0  # seconds for one call, on a machine with much else to do
KEY, TOKEN, SYSTEM = "sk-ant-SENTINEL-key", "SENTINEL-oauth-token", "SENTINEL-system-prompt"
SECRETS = (KEY, TOKEN, SYSTEM)
OPTIONS = ct.ClaudeOptions(tools=(), setting_sources=(), strict_mcp_config=True, system_prompt=SYSTEM, model="haiku")
# what complete() adds: the text so far, and no retries of the CLI beside its own
AS_RUN = OPTIONS.replace(include_partial_messages=True, max_retries=0)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def world(
    monkeypatch: pytest.MonkeyPatch, claude_cli: str, cli_env: Callable[..., dict[str, str]], cli_home: Any
) -> Callable[..., dict[str, str]]:
    """`world(api, row, **variables)`: this process in that state of authentication, with nothing of its own environment left."""

    def enter(api: FakeMessagesAPI, row: AvailableMeans, **variables: str) -> dict[str, str]:
        env = cli_env(api, CLAUDE_CLI_PATH=claude_cli if row.cli else str(cli_home.home / "nowhere"), **variables)
        env.pop("ANTHROPIC_API_KEY")
        if row.api_key:
            env["ANTHROPIC_API_KEY"] = KEY
        elif row.cli:
            env["CLAUDE_CODE_OAUTH_TOKEN"] = TOKEN  # a login, as far as the CLI is concerned
        for name in list(os.environ):
            if not name.startswith("PYTEST"):
                monkeypatch.delenv(name)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(cli_home.project)
        return env

    return enter


def header_for(row: AvailableMeans, kind: str) -> tuple[str, str]:
    """The one header that carries the credential, and its value. The SDK sends a key as a bearer, the CLI under a name of its own."""
    if kind == "cli":
        return ("x-api-key", KEY) if row.api_key else ("authorization", f"Bearer {TOKEN}")
    return "authorization", f"Bearer {KEY}"


async def call(choice: TransportChoice, **arguments: Any) -> ct.Completion:
    with anyio.fail_after(PATIENCE):
        return await ct.complete("Who pays?", transport=choice, **{"options": OPTIONS, "retry": ct.RetryPolicy.none(), **arguments})


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: f"key={row.api_key},claude={row.cli}")
@pytest.mark.parametrize("choice", CHOICES)
async def test_s1_2_each_cell_comes_to_what_the_table_says(choice: TransportChoice, row: AvailableMeans, world: Any) -> None:
    cell = MATRIX[row][choice]
    async with FakeMessagesAPI(replies.text("You do.", times=None)) as api:
        before = world(api, row)
        report = ct.preflight(choice, options=OPTIONS)
        assert (report.row, report.cell, report.ok) == (row, cell, cell.failure != "preflight")
        if cell.failure is None:
            completion = await call(choice)
            assert cell.kind is not None
            header, value = header_for(row, cell.kind)
            (request,) = api.conversation
            assert (completion.text, completion.transport) == ("You do.", cell.kind)
            assert completion.resolution.choice == choice
            assert (request.credential, request.headers[header]) == (header, value)
            assert request.headers["user-agent"].startswith("claude-cli/") == (cell.kind == "cli")
            assert completion.billing_source == report.payer
        else:
            with pytest.raises(ct.ClaudeTransportError) as caught:
                await call(choice)
            if cell.failure == "call":
                assert caught.value.code == cell.code
                assert caught.value.category == ("transport" if cell.kind == "cli" else "auth")
            else:
                with pytest.raises(ct.ConfigurationError) as refused:
                    report.raise_for_problem()
                assert refused.value.code == cell.code
            assert beyond_probes(api) == []
            assert not any(secret in str(caught.value) for secret in SECRETS)
    assert {name: os.environ.get(name) for name in before} == before, "the call has written to this process's environment"


def running(claude: str) -> list[Path]:
    """The `/proc` folders of this process's children that run `claude`."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text()
            if folder.name.isdigit() and int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                found += [folder] if arguments_of(folder)[0] == claude else []
        except (OSError, IndexError):
            continue  # it has ended meanwhile, or is nobody's business
    return found


def arguments_of(folder: Path) -> list[str]:
    return os.fsdecode((folder / "cmdline").read_bytes()).split("\0")[:-1]


def environment_of(folder: Path) -> dict[str, str]:
    pairs = os.fsdecode((folder / "environ").read_bytes()).split("\0")[:-1]
    return dict(pair.split("=", 1) for pair in pairs)


async def watched(api: FakeMessagesAPI, claude: str, ask: Callable[[], Coroutine[Any, Any, object]]) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment of the one binary that runs while `ask()` waits for the gated API."""
    seen: list[tuple[list[str], dict[str, str]]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await api.wait_for_requests(1, timeout=PATIENCE)
        seen += [(arguments_of(folder), environment_of(folder)) for folder in running(claude)]
        api.open_gate()
    ((arguments, environment),) = seen
    assert environment.pop("CLAUDE_TRANSPORT_CHILD"), "the mark by which a child is found again when it must be ended"
    return arguments, environment


@linux_only
@pytest.mark.parametrize("row", [row for row in MATRIX if row.cli], ids=lambda row: f"key={row.api_key}")
@pytest.mark.parametrize("choice", ["auto", "cli"])
async def test_s1_2_the_binary_gets_exactly_the_environment_and_arguments_that_were_promised(
    choice: TransportChoice, row: AvailableMeans, world: Any, claude_cli: str
) -> None:
    async with FakeMessagesAPI(replies.gated("You do.")) as api:
        world(api, row)
        promised = ct.launch.build_launch(AS_RUN, cli=claude_cli, inherited=os.environ)
        arguments, environment = await watched(api, claude_cli, partial(call, choice))
    added = {"CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}
    assert environment == {**os.environ, **added}
    assert environment == promised.env
    assert environment == ct.build_environment(AS_RUN, os.environ)
    assert tuple(arguments[: len(promised.argv)]) == promised.argv
    rest = arguments[len(promised.argv) :]
    assert [argument.partition("=")[0] for argument in rest] == [planned.flag for planned in promised.files]
    assert arguments == ct.build_argv(AS_RUN, claude_cli, files=[(a, b) for a, _, b in (argument.partition("=") for argument in rest)])
    assert not any(secret in argument for secret in SECRETS for argument in arguments)
    assert running(claude_cli) == []


@linux_only
@pytest.mark.parametrize("billing", ["inherit", "subscription", "api_key"])
async def test_s3_1_the_billing_policy_decides_what_reaches_the_binary_and_the_api(
    billing: ct.BillingPolicy, world: Any, claude_cli: str
) -> None:
    async with FakeMessagesAPI(replies.gated("Somebody.")) as api:
        world(api, AvailableMeans(api_key=True, cli=True), CLAUDE_CODE_OAUTH_TOKEN=TOKEN)
        found: list[ct.Completion] = []

        async def ask() -> None:
            found.append(await call("cli", billing=billing))

        _, environment = await watched(api, claude_cli, ask)
    expected = "authorization" if billing == "subscription" else "x-api-key"
    (request,) = api.conversation
    assert request.credential == expected
    assert found[0].billing_source == ("subscription" if billing == "subscription" else "api account")
    assert ("ANTHROPIC_API_KEY" in environment) == (billing != "subscription")
    assert ("CLAUDE_CODE_OAUTH_TOKEN" in environment) == (billing != "api_key")
    assert os.environ["ANTHROPIC_API_KEY"] == KEY


async def test_s3_1_the_strict_policy_refuses_before_anything_runs(world: Any) -> None:
    async with FakeMessagesAPI() as api:
        world(api, AvailableMeans(api_key=True, cli=True))
        with pytest.raises(ct.ConfigurationError, match="subscription_strict") as caught:
            await call("cli", billing="subscription_strict")
        assert caught.value.option == "billing"
        assert beyond_probes(api) == []


@pytest.mark.parametrize("billing", ["subscription", "subscription_strict"])
@pytest.mark.parametrize(
    "settings",
    [
        {"env": {"ANTHROPIC_API_KEY": KEY}},
        {"env": {"ANTHROPIC_AUTH_TOKEN": KEY}},
        {"apiKeyHelper": f"echo {KEY}"},
        {"apiKeyHelper": f"sleep 2; echo {KEY}"},  # the CLI has answered `initialize` before the helper has ended
    ],
    ids=["key", "token", "helper", "slow helper"],
)
async def test_s3_1_settings_of_the_user_do_not_pay_in_place_of_the_subscription(
    settings: dict[str, Any], billing: ct.BillingPolicy, world: Any, cli_home: Any
) -> None:
    """For the CLI they win over the environment: without the refusal, this very call arrives with the key."""
    (cli_home.config / "settings.json").write_text(json.dumps(settings))
    as_user = OPTIONS.replace(setting_sources=["user"])
    async with FakeMessagesAPI(replies.text("Somebody.", times=None)) as api:
        world(api, AvailableMeans(api_key=False, cli=True))
        assert (await call("cli", options=as_user)).billing_source != "subscription"
        asked = len(api.conversation)
        with pytest.raises(ct.ConfigurationError) as caught:
            await call("cli", options=as_user, billing=billing)
        assert caught.value.option == "billing"
        assert not any(secret in str(caught.value) for secret in SECRETS)
        assert len(api.conversation) == asked
        assert not ct.preflight("cli", options=as_user, billing=billing).ok
        with pytest.raises(ct.ConfigurationError, match="cannot be kept") as caught:
            await ct.Query(ct.SubprocessTransport(as_user.replace(billing=billing))).start()
        assert caught.value.option == "billing"
        assert len(api.conversation) == asked


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ("none", False, None)),
        ({"ANTHROPIC_API_KEY": KEY}, ("api_key", True, "ANTHROPIC_API_KEY")),
        ({"ANTHROPIC_AUTH_TOKEN": TOKEN}, ("oauth_token", True, None)),
        ({"CLAUDE_CODE_OAUTH_TOKEN": TOKEN}, ("oauth_token", True, None)),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, ("third_party", True, None)),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, dict) else "",
)
async def test_s1_5_the_binary_says_of_itself_what_preflight_says_of_it(
    variables: dict[str, str], expected: tuple[str, bool, str | None], world: Any, claude_cli: str
) -> None:
    async with FakeMessagesAPI() as api:
        world(api, AvailableMeans(api_key=False, cli=True), **variables)
        clean = {name: value for name, value in os.environ.items() if name != "CLAUDE_CODE_OAUTH_TOKEN"}
        env = ct.build_environment(OPTIONS, {**clean, **variables})
        with anyio.fail_after(PATIENCE):
            status = await ct.completion.read_login_status(claude_cli, env=env, timeout=PATIENCE)
        assert status is not None
        assert (status.auth_method, status.logged_in, status.api_key_source) == expected
        report = ct.preflight("cli", env=env, options=OPTIONS, login_status=status)
        assert report.ok == status.logged_in
        assert (report.credential is not None) == status.logged_in
        assert beyond_probes(api) == []
