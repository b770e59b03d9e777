"""Finds passwords, keys and tokens by the names that stand in front of them: `password=…`, "my password is …".

A name alone is no secret: "reset my password", "password: required" and `password = input()` stay as they are. So what
follows the name is looked at, and the less the name says, the more the value must look like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..folded_text import LABEL_MARK, fold, lowered
from ..rule import SecretSpan

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


class CredentialRule:
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
