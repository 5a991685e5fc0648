"""Redaction: what is taken out, what is left alone, and that a line stays the line it was."""

from __future__ import annotations

import json
import re
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_lines import lines_of, recordings

from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.redaction import Redactor, redactor_knowing
from claude_transport.text.secret_forms import is_login_name, is_password_name, is_secret_name

# Every positive sample holds this, in the place of what must go.
S = "Zx7Qw9sEnTiNeLk3"
UPPER = S.upper()

FREE_TEXT = [
    f"sk-ant-api03-{S}_abc-DEF",
    f"my key is sk-ant-oat01-{S}, thanks",
    f"sk-ant-{S}",
    f"export ANTHROPIC_API_KEY={S}",
    f"ANTHROPIC_AUTH_TOKEN='{S}' claude",
    f'ANTHROPIC_BASE_URL="https://{S}.internal"',
    f"ANTHROPIC_CUSTOM_HEADERS: {S}",
    f"sk-proj-{S}{S}",
    f"sk-{S}{S}",
    f"ghp_{S}{S}xyzw",
    f"github_pat_11ABC{S}_{S}",
    f"glpat-{S}{S}",
    f"xoxb-123456-{S}",
    f"AKIA{UPPER}",
    f"AIza{S}{S}-_",
    f"hf_{S}{S}",
    f"glrt-{S}{S}",
    f"xapp-1-{S}",
    f"GOCSPX-{S}",
    f"pplx-{S}{S}",
    f"xai-{S}{S}",
    f"hvs.{S}{S}",
    f"AGE-SECRET-KEY-1{UPPER}{UPPER}",
    f"dckr_pat_{S}{S}",
    f"dop_v1_{S}{S}",
    f"lin_api_{S}{S}",
    f"r8_{S}{S}",
    f"shpat_{S}{S}",
    f"whsec_{S}{S}",
    f"https://hooks.slack.com/services/T00000000/B00000000/{S}",
    f"https://discord.com/api/webhooks/123456789/{S}",
    f"npm_{S}{S}abcd",
    f"sk_live_{S}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{S}.c2ln",
    f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{S}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S} and the end is missing",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ{S}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"machine github.com login me password {S}",
    f"Proxy-Authorization: Basic {S}",
    f"PRIVATE-TOKEN: {S}",
    f"//registry.npmjs.org/:_authToken={S}",
    f"redis://:{S}@cache:6379/0",
    f"AccountKey={S}==;EndpointSuffix=core",
    f"CLAUDE_CODE_OAUTH_TOKEN={S}",
    f"$env:OPENAI_API_KEY='{S}'",
    f"https://x/callback?access_token={S}#a",
    f"Authorization: Bearer {S}",
    f"authorization: Basic {S}==",
    f"curl -H 'Authorization: {S}' https://x",
    f"bearer {S}",
    f"x-api-key: {S}",
    f"curl -H 'x-api-key: {S}'",
    f"Cookie: a=1; session={S}",
    f"Set-Cookie: id={S}; Path=/",
    f"postgres://app:{S}@db/prod",
    f"https://{S}@github.com/x/y",
    f"https://x.org/?api_key={S}&b=1",
    f"https://x.org/?b=1&key={S}",
    f"https://s3/?X-Amz-Signature={S}",
    f"password={S}",
    f"password: {S}",
    f"passwd = '{S}'",
    f"DB_PASSWORD={S}",
    f'secret = "{S}"',
    f'api_key = "a\\"b{S}"',
    f"apiKey: '{S}'",
    f"GITHUB_TOKEN={S}",
    f"AWS_SECRET_ACCESS_KEY={S}",
    f"aws_access_key_id = {S}",
    f"client_secret:={S}",
    f"passphrase => {S}",
    f"deploy --token {S} --now",
    f"deploy --api-key={S}",
    f"deploy --db-password {S}",
    f"connect(token={S}, x=1)",
    f'{{"password": "{S}"}} inside a text',
    f'\\"api_key\\": \\"{S}\\" twice inside',
    f"write to {S}@mail.company.io",
    f"<first.{S}+tag@sub.company.co.uk>",
    f"mailto:{S}@company.io?subject=x",
    f"https://x.org/?to={S}%40company.io",
    f"jürgen.{S}@firma.de",
    f"{S}@büro.de",
    f"{S}@xn--bro-hoa.de",
    f"/home/{S}/project/x.py",
    f"/mnt/c/Users/{S}/x",
    f"/c/Users/{S}/x",
    rf"C:\Documents and Settings\{S}\x",
    f"https://x.org/?path=%2Fhome%2F{S}%2Fx",
    f"cd /Users/{S} && ls",
    f"file:///home/{S}/x",
    f"/var/home/{S}/x",
    rf"C:\Users\{S}\AppData",
    rf"C:\\Users\\{S} Smith\\AppData",
    f"d:/users/{S}/x",
    f"~/.claude/projects/-home-{S}-project/1.jsonl",
    rf"x\projects\C--Users-{S}-project",
]

FIELDS: list[object] = [
    {"api_key": S},
    {"x-api-key": S},
    {"Authorization": f"Bearer {S}"},
    {"headers": {"authorization": S, "accept": "*/*"}},
    {"env": {"ANTHROPIC_AUTH_TOKEN": S, "PATH": "/bin"}},
    {"env": {"ANTHROPIC_BASE_URL": S}},
    {"accessToken": S},
    {"refresh_token": S, "expires": 1},
    {"clientSecret": S},
    {"password": S},
    {"auth": {"password": "pass word " + S}},
    {"privateKey": S},
    {"credentials": {"user": "x", "deep": [{"value": S}]}},
    {"secrets": [S, "b"]},
    {"headers": [{"name": "X-Api-Key", "value": S}]},
    {"argv": ["claude", "--api-key", S]},
    {"args": ["--token", S, "--verbose"]},
    {"username": S},
    {f"/home/{S}/project": {"history": []}},
    {"input": {"command": f"curl -H 'x-api-key: {S}'"}},
    {"text": f'{{"nested":"{{\\"token\\":\\"{S}\\"}}"}}'},
    {"email": f"{S}@company.com"},
]

STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')

LEFT_ALONE = [
    "the secret: practice every day",
    "the token count is 12",
    "token = 4096",
    "max_tokens=8192",
    "input_tokens: 12",
    "password: required",
    "password = None",
    "api_key: str | None = None",
    "api_key = os.environ['X']",
    "secret=get_secret()",
    "token=$TOKEN",
    "token=${{ secrets.TOKEN }}",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_API_KEY=$KEY",
    "the keyboard and the monkey",
    "primary key (id)",
    "public_key = abc123",
    "the bearer certificates were sold",
    "Bearer of bad news",
    "task-ant-farm and disk-anthology",
    "sk-learn is spelt sklearn",
    "git@github.com:owner/repo.git",
    "https://x.org/?to=user%40example.com",
    "the taxai-model and the complexapp-server",
    "login and password fields",
    "https://x.org/?path=%2Fhome%2Fuser%2Fx",
    "https://discord.com/api/webhooks/",
    "icon@2x.png",
    "react@18.2.0 and @types/node@20",
    "user@example.com",
    "someone@tests.invalid",
    "@dataclass(frozen=True)",
    "a @ b, and 3@4",
    "https://example.com/home/page",
    "https://github.com/a/b?tab=readme#x",
    "http://localhost:8080/x",
    "/home/user/project",
    "/Users/Shared/x",
    "C:\\Users\\Public\\x",
    "/usr/local/bin and /etc/passwd",
    "/home",
    "go home/alone",
    "tokenizer.json and secretary.txt",
    "class Password: ...",
    "token: [secret]",
    "eyJust.a.sentence.with dots",
    "1763671234-5f3a-4b1c-9d2e",
    "the author of the cookie recipe",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "root:x:0:0",
]

FIELDS_LEFT_ALONE: list[object] = [
    {"usage": {"input_tokens": 12, "output_tokens": 7, "max_token": 5}},
    {"apiKeySource": "ANTHROPIC_API_KEY"},
    {"account": {"tokenSource": "none"}},
    {"token": ""},
    {"token": None, "password": None},
    {"schema": {"properties": {"token": {"type": "string", "description": "An access token"}}, "required": ["token"]}},
    {"_meta": {"progressToken": "abc"}},
    {"key": "notification-1", "text": "x"},
    {"tool_use_id": "toolu_5ee1221d40dc", "uuid": "9d8d57ca-4977-4257-ab2d-58f3b6a1c001"},
    {"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk"},
    {"api_key": "${API_KEY}"},
    {"cwd": "/home/user/project", "username": "root"},
]


@pytest.mark.parametrize("text", FREE_TEXT)
def test_a_secret_in_a_text_is_taken_out(text: str) -> None:
    redacted = Redactor().text(text)
    assert S.lower() not in redacted.lower()
    assert Redactor().text(redacted) == redacted, "redacting twice changes nothing"


@pytest.mark.parametrize("text", FREE_TEXT)
def test_a_secret_in_a_line_is_taken_out_and_the_line_stays_json_of_the_same_shape(text: str) -> None:
    frame = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": f"é {text}"}, 1.50, None]}}
    for line in (json.dumps(frame).encode(), json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()):
        redacted = Redactor().line(line)
        assert S.lower().encode() not in redacted.lower()
        assert shape(json.loads(redacted)) == shape(frame)
        assert b"1.5" in redacted
        assert b"\n" not in redacted


@pytest.mark.parametrize("text", FREE_TEXT)
def test_a_secret_in_noise_on_standard_error_is_taken_out(text: str) -> None:
    assert S.lower().encode() not in Redactor().line(b"\xff\xfe warning: " + text.encode() + b" \xff").lower()


@pytest.mark.parametrize("fields", FIELDS)
def test_a_secret_field_is_replaced_by_a_value_of_the_same_kind(fields: object) -> None:
    line = json.dumps({"a": [1, {"b": fields}], "z": "last"}).encode()
    redacted = Redactor().line(line)
    assert S.encode() not in redacted
    assert len(shape(json.loads(redacted))) == 3
    assert json.loads(redacted)["z"] == "last"
    assert Redactor().line(redacted) == redacted


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text
    line = json.dumps({"text": text}, indent=1).replace("\n", " ").encode()
    assert Redactor().line(line) is line


@pytest.mark.parametrize("fields", FIELDS_LEFT_ALONE)
def test_a_field_that_only_sounds_secret_stays(fields: object) -> None:
    line = json.dumps(fields).encode()
    assert Redactor().line(line) is line


def test_there_are_enough_samples() -> None:
    assert len(FREE_TEXT) + len(FIELDS) >= 60
    assert len(LEFT_ALONE) + len(FIELDS_LEFT_ALONE) >= 40
    assert all(S.lower() in sample.lower() for sample in FREE_TEXT)
    assert all(S in json.dumps(sample) for sample in FIELDS)


def test_what_it_is_told_is_secret_is_found_wherever_it_stands() -> None:
    redactor = Redactor(secrets=["correct horse", 'quo"te\\d'], users=["zoe"], homes=["/srv/people/zoe"])
    frame = {
        "text": 'they said correct horse, quo"te\\d',
        "ls": "drwxr-x 2 zoe zoe 4096 zoetrope",
        "cwd": "/srv/people/zoe/x",
        "home": "/root",
    }
    assert json.loads(redactor.line(json.dumps(frame).encode())) == {
        "text": "they said [secret], [secret]",
        "ls": "drwxr-x 2 user user 4096 zoetrope",
        "cwd": "/home/user/x",
        "home": "/root",
    }
    assert redactor.text("projects/-srv-people-zoe-x/1.jsonl") == "projects/-home-user-x/1.jsonl"


def test_common_account_names_and_short_secrets_are_not_looked_for() -> None:
    redactor = Redactor(secrets=["abc"], users=["root", "user", "ci", "x"], homes=["/root", "/"])
    text = "root ran abc in ci as user x in /root/x"
    assert redactor.text(text) == text


def test_a_password_that_is_a_number_becomes_zero_and_a_count_stays() -> None:
    assert Redactor().line(b'{"password": 123456, "token": 5, "max_tokens": 9}') == b'{"password": 0, "token": 5, "max_tokens": 9}'


def test_only_the_string_that_held_the_secret_is_changed() -> None:
    line = b'{ "z":1e400 ,"a" : 0.10, "a":12345678901234567890, "bad\xff":"\xffraw", "t":"\\u0073k-ant-x y\\/", "u":"\\ud83d\\u2028" }'
    expected = line.replace(b"\\u0073k-ant-x y\\/", b"[secret] y/")
    assert Redactor().line(line) == expected


@pytest.mark.parametrize(
    ("torn", "redacted"),
    [
        (b'{"a":"b","text":"sk-ant-abc', b'{"a":"b","text":"[secret]'),
        (b'{"password":"hun', b'{"password":"[secret]'),
        (b'{"text":"/home/alice/pro\\', b'{"text":"/home/user/pro\\'),
        (b'{"text":"caf\xc3 sk-ant-abc"}', b'{"text":"caf\xc3 [secret]"}'),
    ],
)
def test_half_a_line_and_bytes_that_are_not_utf8_are_redacted_too(torn: bytes, redacted: bytes) -> None:
    assert Redactor().line(torn) == redacted


def test_an_oversized_line_stays_one() -> None:
    redacted = Redactor().line(OversizedLine(b'{"text":"sk-ant-abc', size=999, limit=20))
    assert isinstance(redacted, OversizedLine)
    assert (bytes(redacted), redacted.size, redacted.limit) == (b'{"text":"[secret]', 999, 20)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_any_json_keeps_its_shape(value: object) -> None:
    line = json.dumps({"value": value, "k": "sk-ant-abc"}).encode()
    redacted = Redactor().line(line)
    assert shape(json.loads(redacted), keys=False) == shape(json.loads(line), keys=False)
    assert Redactor().line(redacted) == redacted


@given(st.binary())
def test_any_bytes_come_back_without_a_new_line_break_and_the_same_when_redacted_again(data: bytes) -> None:
    for line in (data, b"{" + data, b'{"token":"' + data):
        redacted = Redactor().line(line)
        assert redacted.count(b"\n") <= line.count(b"\n")
        assert Redactor().line(redacted) == redacted


@pytest.mark.parametrize(
    "hostile",
    ["a", "a@", "@a.", "a.", "-", '"', "\\", '\\"', "token", "token ", "token=", "secret:'", "eyJ", "-eyJ", "-eyJa.", "sk-", "://",
     "://a:", "Bearer ",     "-----BEGIN PRIVATE KEY-----", "/home/", "--a-", "[", "{", '{"a":', "C:\\Users\\", "authorization",
     "ANTHROPIC_", "=token", "?key=", "%", "%40", "a%40", "login ", "machine a login b password ", "%2Fhome%2F", "/c/Users/",
     "discord.com/api/webhooks/", "xai-", "é@"],
)  # fmt: skip
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of processor time")
def test_no_line_takes_more_than_linear_time(hostile: str) -> None:
    text = hostile * (60_000 // len(hostile)) + " sk-ant-x"
    with processor_time(1.5):  # ten times what the slowest of them needs, a third of what anything quadratic would
        Redactor().text(text)
        Redactor().line(b'{"a":"' + text.encode())
        Redactor().line(json.dumps({"a": text}).encode())


def test_objects_within_objects_of_a_secret_name_take_memory_in_proportion_to_the_line() -> None:
    line = b'{"token":' * 5000 + b'"hunter2"'
    tracemalloc.start()
    try:
        redacted = Redactor().line(line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert redacted == b'{"token":' * 5000 + b'"[secret]"'
    assert peak < 100 * len(line)


@pytest.mark.parametrize("ask", [is_secret_name, is_password_name, is_login_name])
def test_long_names_are_not_remembered(ask: Callable[[str], bool]) -> None:
    tracemalloc.start()
    try:
        for number in range(1000):
            ask(f"{number}{'n' * 50_000}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000


@pytest.mark.parametrize("length", [0, 190, 191, 192, 1000, 100_000])
def test_however_long_a_name_is_its_last_word_decides(length: int) -> None:
    long = "n" * length
    assert [is_secret_name(f"{long}_password"), is_password_name(f"{long}_password")] == [True, True]
    assert [is_secret_name(f"{long}_api_key"), is_secret_name(f"ANTHROPIC_{long}")] == [True, True]
    assert [is_secret_name(f"password_{long}_x"), is_password_name(f"password_{long}_x")] == [False, False]


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Fail what needs more of the processor than this; how long it waits for the processor does not count."""

    def over(_number: int, _frame: object) -> None:
        pytest.fail(f"it took more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_in_recorded_sessions_nothing_is_touched_but_made_up_credentials_and_settings() -> None:
    changed = {
        old
        for path in recordings()
        for line in lines_of(path, direction="out")
        for old, new in zip(STRINGS.findall(line), STRINGS.findall(Redactor().line(line)), strict=True)
        if old != new
    }
    assert changed <= {b'"x"', b'"http://127.0.0.1:1"', b'"fake-token"', b'"fake-bearer"', b'"sk-ant-oat01-fake"'}


@pytest.mark.parametrize(
    "name", ["apiKey", "API_KEY", "x-api-key", "Token", "my.secret", "dbPassword", "authtoken", "ANTHROPIC_X", "AWSSecretAccessKey"]
)
def test_these_names_promise_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["", "123", "key", "publicKey", "tokenSource", "tokenize", "passwordPolicy", "eos_token", "type", "keys"])
def test_these_names_do_not(name: str) -> None:
    assert not is_secret_name(name)


def shape(value: object, *, keys: bool = True) -> list[object]:
    """The kinds of everything in a JSON value, in order, without any string but names."""
    if isinstance(value, dict):
        items = [[key if keys else "", shape(inner, keys=keys)] for key, inner in value.items()]
        return ["object", len(value), items]
    if isinstance(value, list):
        return ["array", len(value), [shape(inner, keys=keys) for inner in value]]
    return [type(value).__name__]


def test_users_and_homes_of_every_environment_are_known() -> None:
    posix = {"HOME": "/srv/people/ada", "USER": "grace", "LOGNAME": "annie"}
    windows = {"USERPROFILE": "D:\\People\\linus", "USERNAME": "radia"}
    redactor = redactor_knowing([posix, windows])
    assert redactor.text("in /srv/people/ada/x and D:\\People\\linus\\x") == "in /home/user/x and C:\\Users\\user\\x"
    for name in ("grace", "annie", "radia"):
        assert redactor.text(f"by {name}, today") == "by user, today"


def test_the_name_of_a_pair_counts_in_an_object_and_not_in_an_array() -> None:
    redactor = Redactor()
    assert redactor.line(b'{"key":"password","value":"seven words"}') == b'{"key":"password","value":"[secret]"}'
    line = b'{"key":["password","seven words"]}'
    assert redactor.line(line) is line


def test_of_a_long_line_that_is_whole_nothing_is_taken_for_the_beginning_of_a_secret() -> None:
    redactor = Redactor(secrets=["correct-horse-battery"])
    text = b"it was correct-horse"
    assert redactor.line(OversizedLine(text, size=len(text), limit=5)) == text
    assert redactor.line(OversizedLine(text, size=99, limit=5)) == b"it was "


def test_a_flag_with_its_value_says_nothing_of_the_next_argument() -> None:
    redactor = Redactor()
    assert redactor.line(b'["--token","seven words"]') == b'["--token","[secret]"]'
    assert b"seven words" in redactor.line(b'["--set=api_token","seven words"]')


@pytest.mark.parametrize("name", ["HOME", "USERPROFILE"])
@pytest.mark.parametrize("home", ["/home/alicia", "/Users/alicia", "C:\\Users\\alicia"])
def test_the_user_of_a_home_is_removed_also_where_no_path_is(name: str, home: str) -> None:
    said = redactor_knowing([{name: home}]).text("alicia was here: alicia@host, /tmp/alicia")
    assert "alicia" not in said
    assert said.startswith("user was here")
