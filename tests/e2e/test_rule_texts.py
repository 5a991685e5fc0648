"""What the real CLI makes of the text of a permission rule: the facts that `launch.rules` refuses texts by.

The raw value goes by `extra_args`, past the checks. A command that needs permission runs without a question when some rule allows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.launch.rules import check_rules, split_rules
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")

PATIENCE = 60.0  # seconds for a turn of the CLI, on a machine with much else to do

# (the value of --allowedTools, whether the command `sh make.sh` is allowed by it, whether the library lets it through as one rule)
VALUES = [
    ("Skill(x),Bash(*)", True, False),
    ("Skill(x) Bash(sh make.sh)", True, False),
    ("Skill(x\\),Bash(sh make.sh)", True, False),  # the escape does not count when the CLI splits
    ("Read Bash", True, False),
    ("Read,Bash", True, False),
    ("\ufeffBash", True, False),
    ("Bash(sh make.sh)", True, True),
    ("Skill(Bash, touch)", False, True),
    ("Read\nBash", False, False),
    ("Bash(sh make.sh", False, False),
    ("Bash(sh make.sh\\)", False, False),
    ("Bash(sh (a) make.sh)", False, False),
]


@pytest.mark.parametrize(("given", "anyio_backend"), [*zip(VALUES, itertools.cycle(["asyncio", "trio"]))])
async def test_what_a_value_of_allowed_tools_allows(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], given: tuple[str, bool, bool]
) -> None:
    value, allowed, one_rule = given
    asked: list[str] = []

    async def deny(tool: str, *_: object) -> ct.Deny:
        asked.append(tool)
        return ct.Deny("no")

    (cli_home.project / "make.sh").write_text("echo made > proof.txt\n", "utf-8")
    call = replies.tool_use("Bash", {"command": "sh make.sh", "description": "t"})
    async with FakeMessagesAPI(lambda request: "Done." if request.tool_results else call) as api:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        options = ct.ClaudeOptions(
            cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", extra_args={"allowedTools": value}
        )
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(options), can_use_tool=deny) as query:
                await (await query.send("go")).result()
    assert ((cli_home.project / "proof.txt").exists(), asked) == ((True, []) if allowed else (False, ["Bash"]))
    if one_rule:
        check_rules("allowed_tools", [value])
    else:
        with pytest.raises(ct.ConfigurationError, match="not one permission rule"):
            check_rules("allowed_tools", [value])


@pytest.mark.parametrize("content", ["x),Bash(*", "x) Bash(*", "x\\),Bash(*"])
async def test_the_content_of_a_rule_that_a_callback_adds_is_never_split(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], content: str
) -> None:
    asked: list[str] = []
    update = ct.control.PermissionUpdate(
        type="addRules",
        rules=(ct.control.PermissionRule(tool_name="Skill", rule_content=content),),
        behavior="allow",
        destination="session",
    )

    async def can_use_tool(tool: str, *_: object) -> ct.Allow:
        asked.append(tool)
        return ct.Allow(updated_permissions=[update])

    (cli_home.project / "make.sh").write_text("echo made >> proof.txt\n", "utf-8")
    call = replies.tool_use("Bash", {"command": "sh make.sh", "description": "t"})
    async with FakeMessagesAPI(lambda _: call if len(api.conversation) < 3 else "Done.") as api:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact")
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(options), can_use_tool=can_use_tool) as query:
                await (await query.send("go")).result()
    assert asked == ["Bash", "Bash"]


TEXTS = [
    "Read, Bash(git log:*)",
    " Read ,, Edit Bash(git log:*),Glob ",
    "Bash(a, b), Read",
    "Bash(a (b) c) d",
    "Bash(a\\),b)",
    'Bash(echo "a, b") Skill(y z)',
    "Read\nEdit, \tGlob\v,\u00a0Grep\u2003,\x1cWrite",
    "\ufeffRead) Edit,Bash(open, to the end",
]


@pytest.mark.needs("list_permission_rules")
@pytest.mark.parametrize(("texts", "anyio_backend"), [(TEXTS[::2], "asyncio"), (TEXTS[1::2], "trio")])
async def test_a_text_is_split_as_the_cli_splits_it(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], texts: list[str]
) -> None:
    """The CLI lists the rules that it has read, with an escape before a parenthesis in their content."""
    read = []
    async with FakeMessagesAPI() as api:
        for text in texts:
            extra: dict[str, str | None] = {"allowedTools": text}
            options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", extra_args=extra)
            with anyio.fail_after(PATIENCE):
                async with ct.Query(ct.SubprocessTransport(options)) as query:
                    state = (await query.permission_rules()).state
                    read.append([each.rule.replace("\\(", "(") for each in state.rules if each.source == "cliArg"])
    assert read == [split_rules(text) for text in texts]
