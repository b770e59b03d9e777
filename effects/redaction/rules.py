"""The built-in rules: passwords, keys and tokens are found by their own forms, or by the names that stand before them.

Keys of services are found by how they begin. The detectors of `detect-secrets` know many of them. What it has no
detector for, or only one for some of the keys, is in `_BEGINNINGS`. Long hexadecimal numbers are what most systems
make keys and session ids of. JSON Web Tokens are those of RFC 7519; private keys are PEM blocks, keys of PuTTY and of
age. Public keys and certificates are no secrets.

A name alone is no secret: "reset my password", "password: required" and `password = input()` stay as they are. So
what follows the name is looked at, and the less the name says, the more the value must look like a secret.

Secrets also stand in the headers of HTTP (bearer and basic authentication, and cookies) and in web addresses
(passwords in front of the host, and tokens in parameters and paths). And the end of a line may have broken a secret
in two, as in a mail or a narrow window.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module

from .personal import CodeRule, find_accounts, find_cards, find_emails, find_phones
from .rule import LABEL_MARK, SecretRule, SecretSpan, fold, lowered

_BEGINNINGS = {
    r"sk-[\w-]{12,}+": "OpenAI, Anthropic, OpenRouter and others",
    r"(?:sk|rk|pk)_(?:live|test)_\w{10,}+|whsec_[\w+/=]{16,}+": "Stripe",
    r"gh[pousr]_\w{16,}+|github_pat_\w{20,}+": "GitHub",
    r"AIza[\w-]{20,}+|ya29\.[\w-]{16,}+|GOCSPX-[\w-]{16,}+": "Google",
    r"xox[a-z](?:-[\w-]{10,}+|\.[\w.-]{10,}+)|xapp-\d-[\w-]{10,}+": "Slack",
    r"hf_\w{20,}+": "Hugging Face",
    r"gsk_\w{20,}+|xai-\w{20,}+|pplx-\w{20,}+|r8_\w{20,}+|tvly-[\w-]{16,}+|nvapi-[\w-]{20,}+": "hosts of models",
    r"gl(?:pat|dt|ft|rt|soat|ptt|cbt|agent|oas|imt|ffct)-[\w.-]{16,}+": "GitLab",
    r"npm_\w{30,}+|dckr_pat_[\w-]{20,}+|pypi-[\w-]{50,}+|rubygems_\w{40,}+": "registries of packages",
    r"do[opr]_v1_\w{32,}+|hvs\.[\w-]{20,}+|dp\.pt\.\w{30,}+|tfp_\w{30,}+|LTAI\w{12,}+": "hosts and vaults",
    r"shp(?:at|ca|pa|ss)_\w{20,}+|EAA\w{30,}+|sq0\w{3}-[\w-]{20,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+": "shops, mail",
    r"lin_api_\w{20,}+|ntn_\w{20,}+|secret_\w{32,}+|figd_[\w-]{20,}+|PMAK-[\w-]{20,}+|NRAK-\w{20,}+": "tools of teams",
    r"ATATT3[\w=-]{20,}+|sntry[su]_[\w+/=-]{30,}+|glc_[\w+/=-]{30,}+|phc_\w{20,}+|dapi[0-9a-f]{32}": "tools of teams",
    r"key-[0-9a-f]{32}": "Mailgun",
}
"""Patterns of keys, each with who issues them."""

_OWN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_BEGINNINGS)})")

DETECTORS = (
    ("aws", "AWSKeyDetector", 1),
    ("azure_storage_key", "AzureStorageKeyDetector", 1),
    ("discord", "DiscordBotTokenDetector", 1),
    ("github_token", "GitHubTokenDetector", 1),
    ("gitlab_token", "GitLabTokenDetector", 8),
    ("mailchimp", "MailchimpDetector", 1),
    ("pypi_token", "PypiTokenDetector", 2),
    ("sendgrid", "SendGridDetector", 1),
    ("slack", "SlackDetector", 2),
    ("square_oauth", "SquareOAuthDetector", 1),
    ("stripe", "StripeDetector", 1),
    ("telegram_token", "TelegramBotTokenDetector", 1),
    ("twilio", "TwilioKeyDetector", 2),
)
"""The detectors of `detect-secrets` that are used: module, class, and how many of its patterns. The others look for
names of variables, which the rule for passwords does for all services, or are not linear."""

_REST = re.compile(r"[\w-]*+")

_SEPARATOR = re.compile(r"[-_.]")


def _find_api_keys(text: str) -> Iterator[SecretSpan]:
    """Yield the keys in a text, also those that the end of a line has broken in two."""
    yield from _find_key(text)
    if "\n" in text:
        yield from _find_across_lines(text, _find_key)


def _find_key(text: str) -> Iterator[SecretSpan]:
    for match in _OWN.finditer(text):
        if _is_random_key(match[0]):
            yield SecretSpan(*match.span(), "API_KEY")
    for pattern in _detectors():
        done = 0
        for match in pattern.finditer(text):
            start, end = match.span()
            if start >= done and (text[start].isdigit() or not text[max(0, start - 1) : start].isalnum()):
                rest = _REST.match(text, end)
                done = end if rest is None else rest.end()
                yield SecretSpan(start, done, "API_KEY")


@cache
def _detectors() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of `detect-secrets`. The first call loads it, which takes a tenth of a second."""
    found: list[re.Pattern[str]] = []
    for module, name, count in DETECTORS:
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        found += list(detector.denylist)[:count]
    return tuple(found)


def _is_random_key(key: str) -> bool:
    """Whether a key looks as if a machine had made it. Words with hyphens between them do not."""
    first, *parts = _SEPARATOR.split(key)
    return any(len(part) >= 8 and _is_mixed(part) for part in parts or [first[4:]])


def _is_mixed(part: str) -> bool:
    has_digit = any(map(str.isdigit, part))
    return has_digit != part.isdigit() if has_digit else part[1:].upper() != part[1:] != part[1:].lower()


_PASSWORDS = (
    *("password", "passwd", "passphrase", "pass word", "pass-word", "passwort", "kennwort", "salasana", "tunnussana"),
    *("mot de passe", "contraseña", "contrasena", "senha", "wachtwoord", "lösenord", "adgangskode", "passord", "haslo"),
    *("hasło", "heslo", "jelszó", "parola", "şifre", "пароль", "κωδικός"),
    *("密码", "密碼", "口令", "パスワード", "비밀번호"),
)
_OTHERS = ("key", "secret", "token", "pass", "pwd", "psk", "pw", "credentials", "credential", "creds", "cred")

_NAME = re.compile("|".join(re.escape(fold(name).lower()) for name in (*_PASSWORDS, *_OTHERS)))
"""The last word of each name. It is looked for in lower case."""

_STRONG = frozenset(fold(name).lower() for name in (*_PASSWORDS, "pwd", "psk"))
"""Names that say by themselves that a secret follows."""

_OF_KEY = re.compile(
    r"(?:api|access|secret|private|account|auth|encrypt|encryption|signing|shared|master|service|license|client|storage|ssh)"
    r"[_ .-]?$"
)
_OF_SECRET = re.compile(r"(?:client|app|api|consumer|shared|webhook|signing|jwt|session|hmac|cookie|aws)[_ .-]?$")
_OF_TOKEN = re.compile(
    r"(?:access|refresh|auth|authorization|id|bearer|session|api|bot|csrf|xsrf|deploy|device|user|app|jwt|oauth|security)"
    r"[_ .-]?$"
)
_PAGE = re.compile(r"(?:page|next|continuation|sync|cancellation|cancel)[_ .-]?$")
_LONGEST_BEFORE = 16
"""Characters in front of a name that are looked at: "authorization" and a separator."""

_ASSIGNMENT = re.compile(
    r"""(?:[_ -](?:access[_ -])?key)?(?:[_-]?(?:id|value|hash|prod|dev|test|live))?(?:ni|si|mme)?[0-9_]{0,3}+
    (?:(?!'s[ ])\\{0,2}["'`*\])]){0,3}+
    [ \t]{0,3}
    (?::=|=>|==?|[:>]|[ \t]-[ \t]
    |(?P<verb>(?:(?:for|of|to|für)[ ](?:[\w'’.-]{1,20}[ ]){1,4}?)?
        (?:(?:(?:has[ ]been|was)[ ])?(?:changed|set|reset|updated)[ ]to
        |\b(?:is|was|on|ist|lautet|est|es|är|er|é|это))\b|'s[ ]|是|为|為|は)[ \t]?:?
    |(?P<nothing>[ \t]))
    [ \t]{0,3}(?:\n[ \t]{0,8}(?=\S+[ \t]*(?:\n|$)))?
    (?:\\{1,2}"(?P<escaped>[^"\\\n\ue000]{1,500}+)
    |(?P<quote>["'`])(?P<quoted>(?:(?!(?P=quote))[^\\\n\ue000]|\\[^\n\ue000]){1,500}+)(?:(?P=quote)|(?=\n|\Z))
    |(?P<plain>(?:[^\s"'`<>,;&\\\ue000]|&(?![\w.-]{1,40}=)|\\(?!["nrt])){1,500}+))""",
    re.VERBOSE | re.IGNORECASE,
)
"""What follows a name: the rest of the name, a sign or a verb, and the value."""

_NO_VALUE = frozenset({
    *("none", "null", "nil", "true", "false", "yes", "no", "not", "str", "string", "int", "bool", "text", "optional"),
    *("required", "undefined", "unknown", "empty", "hidden", "masked", "redacted", "removed", "omitted", "missing"),
    *("wrong", "incorrect", "invalid", "correct", "valid", "right", "ok", "fine", "good", "bad", "weak", "strong"),
    *("short", "long", "safe", "secure", "secret", "private", "public", "the", "a", "an", "in", "on", "at", "to"),
    *("for", "by", "what", "which", "where", "when", "how", "why", "here", "below", "above", "attached", "same"),
    *("too", "now", "still", "also", "only", "never", "always", "already", "different", "new", "old", "default"),
    *("plain", "important", "mandatory", "forgotten", "lost", "stolen", "known", "unsafe", "insecure", "temporary"),
    *("permanent", "unique", "easy", "hard", "simple", "complex", "blank", "password", "passwort", "token", "key"),
    *("with", "very"),
    *("set", "input", "value", "todo", "tbd", "placeholder", "xxx", "n/a", "na", "self", "your", "my", "our", "their"),
    *("it", "its", "this", "that", "these", "those", "one", "you", "he", "she", "we", "they", "i", "if", "then"),
    *("else", "and", "or", "but", "as", "be", "from", "get", "is", "are", "was"),
})  # fmt: skip
"""Words that follow a name without being its value."""

_CODE = re.compile(
    r"""(?:[$%@]?[{(<]|\$\w|%\(|%s|\.{2,}|\*{3}|_{3}|-{3}|x{3,}|•|…|\#)   # a placeholder, or what was made unreadable
    |(?:[A-Za-z_]\w*(?:\.\w+)*)?[\[(]                                    # a call or an index
    |[A-Za-z_]+(?:\.[A-Za-z_]+)+\b                                       # a member of an object
    |(?:https?|file)://|/(?:[\w.-]+/)+                                   # where it can be found
    |\d+[–-]\d+(?![\w-])|\d+$(?<!\d{4})|\d+%                                      # how long it is
    """,
    re.VERBOSE | re.IGNORECASE,
)

_PLAIN_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ENDING = re.compile(r"(?:ed|ing|able|ible|ly|ful|less|ive|ant|ent|ary|ory)$", re.IGNORECASE)
_CLAUSE_END = re.compile(
    rf"\s*(?:$|[.,;!?)\]}}<|/\n\"'`*{LABEL_MARK}]|(?:and|but|und|et|y|ja|och|og|for|please|thanks)\b)", re.IGNORECASE
)
_BEFORE = re.compile(
    r"(?<!\S)(?P<value>[^\s\ue000]{6,64})\s(?:as|is)\s(?:my|the|your|our)\s(?:\w{1,12}\s)?$", re.IGNORECASE
)
"""A value in front of its name: "Tr0ub4dor is my password"."""

_ALGORITHM = re.compile(
    r"(?:sha|md|base|utf|oauth|bcrypt|argon|pbkdf|http|tls|aes|rsa|v|ver|step|no|nr|field|version)[_-]?\d",
    re.IGNORECASE,
)

_COMMAND = re.compile(
    r"""\b(?:(?:mysql|mysqldump|mysqladmin|mariadb|sshpass)\b[^\n|;\ue000]{0,100}?\s-p\s?["']?
        (?P<password>[^\s"'\ue000|;]{3,100}+)
    |curl\b[^\n|;\ue000]{0,200}?\s(?:-u|--user)[\s=]["']?[^\s:"'\ue000]{1,64}+:(?P<of_user>[^\s"'\ue000]{1,100}+))""",
    re.VERBOSE,
)
"""Passwords among the arguments of programs."""

_REST_OF_FIELD = re.compile(
    r"""s?(?:[_ -]?(?:access[_ -]?)?key)?
    (?:[_ -]?(?:id|value|hash|prod|dev|test|live|confirm(?:ation)?|repeat(?:ed)?|again))?[0-9_]{0,3}""",
    re.VERBOSE | re.IGNORECASE,
)
_COUNTED = ("tokens", "secrets", "keys")
"""The ends of names that have numbers as their values, and words."""

_OPERATOR = re.compile(r"\s+(?:[=+*/|%.]|if\b|or\b|and\b|in\b|not\b|else\b|for\b|is\b)|[(\[]")

_LAST_LETTER = "\u2fff"
"""Behind it are the scripts that are written without spaces, where the value cannot be told from the sentence."""

_SHORTEST = 3
_SHORTEST_WEAK = 6
"""Characters."""


class _CredentialRule:
    """Finds values behind names in a text, and knows which members of a JSON object are secret by their names."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the passwords, keys and tokens in a text, without their names."""
        lower = lowered(text)
        for command in _COMMAND.finditer(text):
            yield SecretSpan(*command.span(command.lastgroup or 0), "PASSWORD")
        for name in _NAME.finditer(lower):
            is_strong = _is_strong(lower, name)
            if is_strong is None:
                continue
            before = _BEFORE.search(text, max(0, name.start() - 100), name.start())
            if is_strong and before is not None and _is_random(before["value"]):
                yield SecretSpan(*before.span("value"), "PASSWORD")
            if (match := _ASSIGNMENT.match(text, name.end())) is None:
                continue
            group = "escaped" if match["escaped"] else "quoted" if match["quoted"] else "plain"
            value = match[group] if group != "plain" else _without_punctuation(match[group])
            start = match.start(group)
            rest = text[start + len(value) : start + len(value) + 20]
            if _is_value(value, match, rest, is_quoted=group != "plain", is_strong=bool(is_strong)):
                yield SecretSpan(start, start + len(value), "PASSWORD")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no secret."""
        lower = lowered(fold(name))
        value = fold(value.strip())
        if not value or value.casefold() in _NO_VALUE or _CODE.match(value):
            return None
        if lower.endswith(_COUNTED) and (value.isdigit() or not _is_random(value)):
            return None  # how many there are
        for match in _NAME.finditer(lower):
            is_strong = _is_strong(lower, match)
            if is_strong is not None and _REST_OF_FIELD.fullmatch(lower, match.end()):
                return "PASSWORD" if is_strong or _is_random(value) else None
        return None


def _is_strong(lower: str, name: re.Match[str]) -> bool | None:
    """Whether a name says by itself that a secret follows. None for a word that only ends or begins like a name."""
    word = name[0]
    before = lower[max(0, name.start() - _LONGEST_BEFORE) : name.start()]
    match word:
        case "key":
            return True if _OF_KEY.search(before) else None
        case "secret":
            return _OF_SECRET.search(before) is not None
        case "token":
            return None if _PAGE.search(before) else _OF_TOKEN.search(before) is not None
        case _ if word in _STRONG and len(word) > 3:
            return True
        case _:
            return None if before[-1:].isalpha() else word in _STRONG


def _without_punctuation(value: str) -> str:
    value = value.rstrip(".?:*") or value
    for opening, closing in ("()", "[]", "{}"):
        while value.endswith(closing) and value.count(closing) > value.count(opening):
            value = value[:-1].rstrip(".")
    return value


def _is_value(value: str, match: re.Match[str], rest: str, *, is_quoted: bool, is_strong: bool) -> bool:
    """Whether this is a value, and not the rest of a sentence or of a program."""
    if len(value) < _SHORTEST or value.casefold().rstrip(".,;:!?") in _NO_VALUE or _CODE.match(value):
        return False
    if match["nothing"] and not (is_strong and _is_alphanumeric(value) and not _ALGORITHM.match(value)):
        return False
    if not is_strong and not _is_random(value) and not _is_assigned_to_pass(value, match):
        return False
    return is_quoted or _is_unquoted_value(value, match, rest)


def _is_unquoted_value(value: str, match: re.Match[str], rest: str) -> bool:
    if match["verb"] is not None and value[0] > _LAST_LETTER:
        return False
    if not _PLAIN_WORD.fullmatch(value):
        return match["verb"] is None or not _is_measure(value, rest)
    if match["verb"] is None and "=" in match[0]:
        return not _OPERATOR.match(rest)
    return not _ENDING.search(value) and _CLAUSE_END.match(rest) is not None


def _is_assigned_to_pass(value: str, match: re.Match[str]) -> bool:
    """Whether the name is "pass" or "pw", and this is no word behind it: `DB_PASS='abc def'`, `pw: x9$kQ`."""
    before = match.string[max(0, match.start() - 4) : match.start()].casefold()
    is_pass = before.endswith(("pass", "pw"))
    return is_pass and ("=" in match[0] or (len(value) >= 4 and not value.isalpha() and not value.isdigit()))


def _is_measure(value: str, rest: str) -> bool:
    """Whether this tells how long a password is: "password is 12 characters long"."""
    return value.isdigit() and len(value) < 4 and re.match(r"\s*[^\W\d_]", rest) is not None


def _is_alphanumeric(value: str) -> bool:
    return len(value) >= _SHORTEST_WEAK and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_random(value: str) -> bool:
    """Whether a value looks as if a machine had made it."""
    if value.isdigit():
        return len(value) >= 8
    has_digit = any(map(str.isdigit, value))
    is_mixed = value[1:].lower() != value[1:] != value[1:].upper()
    return len(value) >= _SHORTEST_WEAK and (has_digit or is_mixed)


_HEADER = re.compile(
    r"""\b(?:proxy-)?authorization\b\\{0,2}["']?\s?[:=]\s?\\{0,2}["']?
    (?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256|[\w-]{1,20}+)[ ]{1,3})??
    (?P<secret>[\w.~+/=:-]{6,}+)(?![ \t]*\()""",
    re.VERBOSE | re.IGNORECASE,
)

_WITH_SCHEME = re.compile(
    r"""\b(?:proxy-)?authorization\b\\{0,2}["']?\s?[:=]\s?\\{0,2}["']?
    (?:bearer|basic|token|digest|negotiate|apikey)[ ]{1,3}(?P<secret>[\w.~+/=:-]{6,}+)(?![ \t]*\()""",
    re.VERBOSE | re.IGNORECASE,
)
"""A header whose scheme is known: what stands behind it is rather a credential than a word."""

_BEARER = re.compile(r"\bbearer[ \t:]{1,3}\n?(?P<secret>[\w.~+/=-]{8,}+)", re.IGNORECASE)

_BASIC = re.compile(r"\bbasic[ \t:]{1,3}(?P<secret>[A-Za-z0-9+/]{6,}+={0,2})", re.IGNORECASE)

_COOKIE = re.compile(
    r"""\bcookie\b\\{0,2}["']?\s?:\s?\\{0,2}["']?(?P<secret>[\w.-]{1,100}+=[^\n"'\\\ue000]{1,4000}+)""", re.IGNORECASE
)

_WORDS = frozenset({
    *("required", "needed", "missing", "optional", "invalid", "none", "null", "header", "headers", "failed", "bearer"),
    *("basic", "token", "authentication", "authorization"),
})  # fmt: skip
"""What follows the name of a header where no credential does."""

_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-auth", "x-authorization"})
_COOKIE_HEADERS = frozenset({"cookie", "set-cookie", "cookies"})


def _is_no_word(text: str) -> bool:
    return text.casefold() not in _WORDS


def _is_token(text: str) -> bool:
    return any(map(str.isdigit, text)) or len(text) >= 20


def _is_no_plain_word(text: str) -> bool:
    """Whether this is not just words, perhaps with a capital, at the end of a sentence, or as a placeholder."""
    word = text.rstrip(".:").replace("_", "").replace("-", "")
    return not (word.isalpha() and (word[1:].islower() or word.isupper()))


def _is_pair(text: str) -> bool:
    """Whether this is a user and a password in base64, as basic authentication writes them (RFC 7617)."""
    try:
        return b":" in b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False


_SCHEMES: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("authorization", _HEADER, _is_no_word),
    ("authorization", _WITH_SCHEME, _is_no_plain_word),
    ("bearer", _BEARER, _is_token),
    ("basic", _BASIC, _is_pair),
    ("cookie", _COOKIE, bool),
)
"""A word in lower case, the pattern to look for in texts with this word, and a check of what it finds."""


class _HeaderRule:
    """Finds credentials in headers of HTTP that stand in a text, and in those that are members of a JSON object."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the credentials in a text, without the names of the headers and of the schemes."""
        lower = lowered(text)
        for hint, pattern, is_secret in _SCHEMES:
            if hint in lower:
                for match in pattern.finditer(text):
                    if is_secret(match["secret"]):
                        yield SecretSpan(*match.span("secret"), "TOKEN")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no credential."""
        header = fold(name).casefold()
        if header in _COOKIE_HEADERS:
            return "TOKEN" if "=" in value else None
        is_secret = header in _SECRET_HEADERS and _is_no_word(value.strip())
        return "TOKEN" if is_secret and (" " in value.strip() or _is_token(value)) else None


SHORTEST = 32
"""Digits: 16 bytes, as few as anybody would use for a key. Commit ids that are shortened, colours and addresses of
memory have fewer; a UUID has hyphens."""

_LONG = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?(?P<digits>[0-9A-Fa-f]{32,}+)(?![0-9A-Za-z])")

_PUBLIC = re.compile(
    r"""\b(?:commit|merge|tree|parent|revision|rev|checksum|digest|etag|integrity|fingerprint
    |sha-?(?:1|224|256|384|512)(?:sum)?|md5(?:sum)?|blake2[bs]?)\b['"]?\s?(?:\([^()\n]{1,80}\)\s?)?[:=@/-]?\s?['"]?$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What says that the number behind it identifies a commit or a file, which anybody may know."""

_LOOKED_BACK = 110


def _find_long_hexadecimals(text: str) -> Iterator[SecretSpan]:
    """Yield the hexadecimal numbers of 32 digits and more, unless they are named as a commit or a checksum."""
    for match in _LONG.finditer(text):
        digits = match["digits"]
        is_number = digits.isdigit() or digits.isalpha()
        if not is_number and not _PUBLIC.search(text[max(0, match.start() - _LOOKED_BACK) : match.start()]):
            yield SecretSpan(*match.span(), "HEX")


_MARKER = re.compile(r"-{2,5} ?(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z0-9 ]{0,10}-{2,5}", re.IGNORECASE)

_BODY = re.compile(
    r"(?:[A-Za-z0-9+/=\s\\]|(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n\\\ue000]{0,200})*+", re.IGNORECASE
)
"""What may stand behind the first marker of a key that was cut off."""

_PUTTY = re.compile(r"PuTTY-User-Key-File-\d")
_PUTTY_END = re.compile(r"Private-MAC: ?[0-9a-f]+")
_AGE = re.compile(r"AGE-SECRET-KEY-1[A-Z0-9]{20,}+", re.IGNORECASE)


def _find_private_keys(text: str) -> Iterator[SecretSpan]:
    """Yield the private keys in a text, each with the lines that mark where it begins and ends."""
    lowered = text.casefold()
    if "private key" in lowered:
        yield from _find_blocks(text)
    for begin in _PUTTY.finditer(text):
        end = _PUTTY_END.search(text, begin.end())
        yield SecretSpan(begin.start(), len(text) if end is None else end.end(), "PRIVATE_KEY")
        break  # one that follows is found when this one is gone
    if "age-secret-key-" in lowered:
        yield from (SecretSpan(*match.span(), "PRIVATE_KEY") for match in _AGE.finditer(text))


def _find_blocks(text: str) -> Iterator[SecretSpan]:
    begin: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        if begin is not None:
            end = marker.end() if marker[1].upper() == "END" else _end_of_body(text, begin)
            yield SecretSpan(begin.start(), end, "PRIVATE_KEY")
        begin = marker if marker[1].upper() == "BEGIN" else None
    if begin is not None:
        yield SecretSpan(begin.start(), _end_of_body(text, begin), "PRIVATE_KEY")


def _end_of_body(text: str, begin: re.Match[str]) -> int:
    body = _BODY.match(text, begin.end())
    assert body is not None, "it may be empty"
    return begin.end() + len(body[0].rstrip())


_USER = re.compile(r"://(?P<user>[^\s/?#@:\"'<>\ue000]{0,100}+)(?::(?P<secret>[^\s/?#\"'<>\ue000]{1,200}))?@")

_PARAMETER = re.compile(
    r"""(?<=[?&;\#])(?:
    (?P<strong>(?:[\w.-]{0,40}[_.-])??(?:token|secret|password|passwd|pwd|pass|signature|sig|credential|api_?key|apikey
        |access_?key|auth_?key|subscription-key|jwt|otp|totp|session_?id|sessionid|phpsessid|jsessionid|sid
        |saml(?:request|response)|assertion|ticket|magic|invite|code_verifier|client_secret|x-amz-(?:signature|credential))
    )|(?P<weak>key|code|auth|session|hash|hmac|nonce))
    =(?P<secret>[^&;\#\s"'<>\\\ue000]{3,2000}+)""",
    re.VERBOSE | re.IGNORECASE,
)

_PATH = re.compile(
    r"""/(?:[\w-]{0,20}-)?(?:token|reset|verify|verification|invite|invitation|magic|magic-?link|confirm|activate|auth|login
    |unsubscribe|webhooks/\d{5,25}|session)[\w-]{0,20}+/(?P<secret>[\w.~+=%-]{12,}+)""",
    re.VERBOSE | re.IGNORECASE,
)

_SHORTEST_IN_ADDRESS = 8
"""Characters. A shorter value of a parameter with an ordinary name is rather a word or a number."""


def _find_secrets_of_addresses(text: str) -> Iterator[SecretSpan]:
    """Yield the passwords and tokens in web addresses."""
    if "://" in text:
        yield from _find_users(text)
    if "=" in text and ("?" in text or "&" in text or "#" in text or ";" in text):
        for match in _PARAMETER.finditer(text):
            value = match["secret"]
            if match["weak"] is None or (len(value) >= _SHORTEST_IN_ADDRESS and any(map(str.isdigit, value))):
                yield SecretSpan(*match.span("secret"), "TOKEN")
    if "/" in text:
        for match in _PATH.finditer(text):
            value = match["secret"]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _is_slug(value):
                yield SecretSpan(*match.span("secret"), "TOKEN")


def _find_users(text: str) -> Iterator[SecretSpan]:
    for match in _USER.finditer(text):
        if match["secret"] is not None:
            yield SecretSpan(*match.span("secret"), "PASSWORD")
        elif len(match["user"]) >= 20 and any(map(str.isdigit, match["user"])):
            yield SecretSpan(*match.span("user"), "TOKEN")


def _is_slug(value: str) -> bool:
    """Whether this is the title of a page, in words with hyphens between them."""
    parts = value.split("-")
    return len(parts) > 2 and sum(part.isalpha() or part.isdigit() for part in parts) > len(parts) / 2


_TOKEN = re.compile(r"(?<![\w-])(?P<head>eyJ[\w-]{4,}+)\.[\w-]{4,}+(?:\.[\w-]*+){0,3}")


def _find_web_tokens(text: str) -> Iterator[SecretSpan]:
    """Yield the web tokens in a text, also those that the end of a line has broken in two."""
    if "eyJ" in text:
        yield from _find_token(text)
        if "\n" in text:
            yield from _find_across_lines(text, _find_token)


def _find_token(text: str) -> Iterator[SecretSpan]:
    for match in _TOKEN.finditer(text):
        if _is_head(match["head"]):
            end = match.end() - (match[0].endswith("."))
            yield SecretSpan(match.start(), end, "JWT")


def _is_head(head: str) -> bool:
    """Whether the first part of a token is a JSON object that names an algorithm."""
    try:
        decoded = json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and bool(decoded.keys() & {"alg", "typ", "enc", "kid"})


_BREAK = re.compile(r"(?<=[\w=+/.-])[ \t]*\r?\n[ \t]*(?=[\w+/.-])")

_HAS_DIGIT = re.compile(r"[0-9]")
_IS_MIXED = re.compile(r"[a-z]+[A-Z]|[A-Z]{2}[a-z]")


def _find_across_lines(text: str, find: Callable[[str], Iterable[SecretSpan]]) -> Iterator[SecretSpan]:
    """Yield the secrets that `find` finds in the text without its line breaks, if they go across one.

    What stands on the last line must look like a part of a secret, and not like the first word of the next sentence.
    """
    breaks = list(_BREAK.finditer(text))
    if not breaks:
        return
    joined, places, shifts, done, removed = [], [], [0], 0, 0
    for one in breaks:
        joined.append(text[done : one.start()])
        removed += one.end() - one.start()
        places.append(one.end() - removed)  # where the next line begins in the joined text
        shifts.append(removed)
        done = one.end()
    whole = "".join([*joined, text[done:]])
    for found in find(whole):
        start, end = found.start, found.end
        while (line := bisect_left(places, end) - 1) >= 0 and places[line] > start:
            if _is_part(whole[places[line] : end]):
                before = bisect_right(places, start)
                yield SecretSpan(start + shifts[before], end + shifts[line + 1], found.label)
                break
            end = places[line]


def _is_part(text: str) -> bool:
    return bool(_HAS_DIGIT.search(text) or _IS_MIXED.search(text))


BUILT_IN_RULES: tuple[SecretRule, ...] = (
    _find_private_keys,
    _find_web_tokens,
    _find_api_keys,
    find_cards,
    find_accounts,
    find_emails,
    _HeaderRule(),
    _find_secrets_of_addresses,
    _CredentialRule(),
    CodeRule(),
    _find_long_hexadecimals,
    find_phones,
)
"""Where two rules find the same secret, the label is that of the first."""
