"""Names that the tests of convene import, and that only the old plumbing had. The tests that call them do not apply."""

from __future__ import annotations

import os
import tempfile

os.environ["CONVENE_HOME"] = tempfile.mkdtemp(prefix="convene-tests-")

import convene.sessions

for name in ("_live_argv", "_user_message"):
    setattr(convene.sessions, name, None)
