"""The main path of clauditor's runner on the real CLI: a skill, a failure of the API, a time limit, no binary."""

import os
from pathlib import Path

from clauditor.runner import SkillRunner
from main_paths import world

from claude_transport.testing import replies

SKILL = "---\nname: greet\ndescription: Greets.\n---\nSay hello to $ARGUMENTS.\n"

REFUSED = replies.error(401, headers={"x-should-retry": "false"}, times=1)

with world("Hello, Ada!", REFUSED, replies.gated("Too late.")) as claude:
    skill = Path(os.environ["HOME"], "project", ".claude", "skills", "greet", "SKILL.md")
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL, "utf-8")
    runner = SkillRunner(project_dir=skill.parents[3], claude_bin=claude, timeout=60)
    greeted = runner.run("greet", "Ada")
    assert greeted.succeeded_cleanly
    assert (greeted.output, greeted.api_key_source) == ("Hello, Ada!", "ANTHROPIC_API_KEY")
    assert greeted.output_tokens
    refused = runner.run_raw("two")
    assert (refused.error_category, refused.succeeded) == ("auth", False), refused
    assert refused.exit_code != -1
    late = runner.run_raw("three", timeout=3)
    assert (late.exit_code, late.error, late.error_category) == (-1, "timeout", "timeout"), late
    absent = SkillRunner(claude_bin="/nowhere/claude").run_raw("four")
    assert (absent.exit_code, absent.error) == (-1, "Claude CLI not found: /nowhere/claude")
