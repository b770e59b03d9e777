"""Finds what is personal: one-time codes, e-mail addresses, payment cards, bank accounts and telephone numbers.

Digits alone are no code, and not every code is secret: those of errors, places, countries, shops and programs are
not. So one-time codes, PINs and the check numbers of cards are found by the words around them. The numbers of payment
cards and of bank accounts are found by their checksums.

Telephone numbers are international ones, those of North America as they are written there, and any that a word such
as "tel" or "mobile" stands in front of. Whether digits can be a number is decided by `phonenumbers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from .rule import SecretSpan, fold, lowered

_KINDS = r"""(?:verification|verify|verifying|security|log[_\s-]?in|sign[_\s-]?in|sign[_\s-]?on|authentication
    |authenticator|authorization|auth|confirmation|access|one[_\s-]?time|single[_\s-]?use|2fa|mfa|two[_\s-]?factor|sms
    |text|activation|recovery|backup|reset|unlock|door|alarm|gate|pairing|bank|secret|temporary|card|otp|pin|entry|safe)"""

_NAME = rf"""(?:{_KINDS}[_\s-]?(?:pass)?code
    |(?:one[_\s-]?time|security|card)[_\s-](?:password|number|pin)
    |authenticator(?:\sapp)?
    |\b(?:otp|totp|pin|cvv2?|cvc2?|csc|(?-i:TAN)|mfa|2fa|passcode|pincode|pin[_\s-]?(?:code|number))\b
    |kertakäyttökoodi\w*|vahvistuskoodi\w*|tunnusluku\w*|pin-?koodi\w*|turvakoodi\w*
    |bestätigungscode|sicherheitscode|einmalcode|engångskod\w*|verifieringskod\w*
    |code\sde\s(?:vérification|sécurité|confirmation)|código\sde\s(?:verificación|seguridad|confirmación)
    |{fold("код")}(?:\s{fold("подтверждения")})?|验证码|驗證碼|認証コード|인증번호)"""

_DIGITS = r"""(?:(?:[A-Z]-)?\d{4,8}|\d{3}[\ -]\d{3,4}|\d{4}[\ -]\d{4}|\d{2}[\ -]\d{2}[\ -]\d{2}
    |\d[\ -]\d[\ -]\d[\ -]\d(?:[\ -]\d){0,4})"""

_LETTERS = r"(?-i:(?=[A-Za-z-]{0,9}\d)(?:[A-Z0-9]{4,10}|[A-Z0-9]{3,5}-[A-Z0-9]{3,5}|[a-z0-9]{6,10}))"

_CODE = rf"(?P<secret>{_DIGITS}|{_LETTERS})"

_END = r"(?![\w-]|[.,:/]\d|\s?%)"
"""Behind a code: it does not go on as a longer number, a price, a moment or a percentage."""

_BETWEEN = r"""(?:(?:they|you|we|i|he|she|it|that|which|just|for|to|from|in|me|us|my|your|the|this|sent|texted|sign|log
    |got|is|are|was|below|now|number|code|today|acme|google|apple|bank|account|login|new|on|ist|est|es|är|lautet|lauten
    |shows|displays|reads|says)\b|[a-z]{1,12}(?='s))(?:[ ]{1,2}|(?=:))"""
"""A word that may stand between a name and the code."""


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE | re.IGNORECASE)


_PATTERNS = (
    # A code behind its name, perhaps with a few words between them: "your verification code for Acme is 482913".
    _pattern(
        rf"""{_NAME}(?:s?\b|[是为為は])[\s"'`*)\]]{{0,3}}(?:{_BETWEEN}){{0,7}}+[\s:=\#>"'`*(\[-]{{0,5}}{_CODE}{_END}"""
    ),
    _pattern(
        rf"""\b(?:cvv2?|cvc2?|csc|security\s(?:code|number))\b[\s:="'(is]{{1,6}}(?P<secret>\d{{3}}){_END}""",
    ),
    # A code that belongs to somebody: "your Acme code is 482913".
    _pattern(
        rf"""\b(?:your|my|the|ihr|koodi(?:si)?|dein)\b[ ]{{1,2}}(?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,2}}?
        (?:code|koodi|kod|passcode|pin)\b(?:[ ](?:is|=|on|ist|lautet|est|es)|:)\s{{0,3}}["'`*(\[]{{0,2}}{_CODE}{_END}"""
    ),
    # A code in front of its name: "482913 is your code".
    _pattern(
        rf"""(?<![\w.,:/-]){_CODE}(?![\w-])["'`*)\]]{{0,2}}[ ]{{1,2}}(?:(?:is|as|ist|on|est|es|to)[ ])?
        (?:(?:your|my|the|ihr|dein|one-time|otp|sinun)[ ]{{1,2}})(?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,3}}?
        (?:{_NAME}|code\b|koodi)"""
    ),
    # A code by what it is for: "use 482913 to log in".
    _pattern(
        rf"""\b(?:use|enter|type|käytä|syötä)[ ]{{1,2}}(?:(?:the|this|code)[ ]{{1,2}}){{0,2}}
        ["'`*]{{0,2}}(?P<secret>{_DIGITS})["'`*]{{0,2}}[ ]{{1,2}}(?:to|for|as)[ ]{{1,2}}(?:(?:your|the|a)[ ])?
        (?:log|sign|verif|confirm|authent|complete|reset|unlock|access|two|one)"""
    ),
    # The six digits that most services send, behind "code" alone.
    _pattern(
        rf"""\b(?:code|koodi(?:si|ni)?|codice|código)(?:[ ](?:on|est|è|es|ist|lautet))?[ :=\#]{{1,3}}["'`*(]{{0,2}}
        (?P<secret>\d{{6}}|\d{{3}}[ -]\d{{3}}){_END}"""
    ),
)

_PUBLIC = _pattern(
    r"""(?:error|exit|zip|post(?:al)?|country|area|status|product|promo|discount|coupon|voucher|item|order|source|dress
    |colou?r|currency|sort|qr|bar|gate|language|airport|response|http|return|build|course|dial(?:l?ing)?|city|state|tax
    |swift|referral|invite|gift|part|article|stock|hs|hts|sic|naics|icd|cpt|model|serial|tariff|asset|ticker|unit|site
    |store|shop|job|event|track|ticket|booking|reference|tracking|department|cost|account|customer)$"""
)
"""What stands in front of "code" where it is no code of a person."""

_CODE_WORD = re.compile(r"[\s:]+(?:codes?|koodi)\b", re.IGNORECASE)

_FIELD = _pattern(
    r"""(?:otp|totp|pin|pin_?code|passcode|cvv2?|cvc2?|csc|tan
    |(?:mfa|2fa|sms|verification|security|one_?time|login|auth|access|confirmation|activation|recovery|backup)
    _?(?:code|pin|password)s?)"""
)
_FIELD_VALUE = _pattern(rf"\d{{3,10}}|{_DIGITS}|[A-Za-z0-9-]{{4,12}}")

_HINT = re.compile(
    rf"code|koodi|kod|{fold('код')}|验证码|驗證碼|コード|인증번호|pin|otp|tan|cvv|cvc|csc|2fa|mfa|tunnusluku|código|digo\sde|codice"
    r"|one-time|one\stime|security|verif|unlock|sign\sin|log\sin|authenticator"
)
"""Words for codes, or parts of such words, in lower case. They are quickly found, and most texts have none of them."""

_AROUND = 120
"""Characters before and behind such a word in which its code stands."""

_DIGIT = re.compile(r"[0-9]")
_REST_OF_WORD = re.compile(r"[^\s]{0,40}+")


class CodeRule:
    """Finds codes in a text, and knows which members of a JSON object are codes by their names."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the codes in a text."""
        for start, end in _places_of_hints(text):
            for pattern in _PATTERNS:
                for match in pattern.finditer(text, start, end):
                    if not _is_public(match):
                        yield SecretSpan(*match.span("secret"), "CODE")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no code."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_")
        is_code = _FIELD.fullmatch(words) and _FIELD_VALUE.fullmatch(fold(value.strip()))
        return "CODE" if is_code and any(map(str.isdigit, value)) else None


def _places_of_hints(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text in which a word for codes and a digit stand."""
    start = end = 0
    for hint in _HINT.finditer(lowered(text)):
        if hint.start() - _AROUND > end:
            if _DIGIT.search(text, start, end):
                yield start, _end_of_word(text, end)
            start = hint.start() - _AROUND
        end = hint.end() + _AROUND
    if _DIGIT.search(text, start, end):
        yield start, _end_of_word(text, end)


def _end_of_word(text: str, place: int) -> int:
    """Return where the word ends that goes across this place, so that no code is cut."""
    rest = _REST_OF_WORD.match(text, place)
    return place if rest is None else rest.end()


def _is_public(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 40) : match.start("secret")]
    named = list(_CODE_WORD.finditer(before))
    return bool(named) and _PUBLIC.search(before[: named[-1].start()]) is not None


_ADDRESS = re.compile(
    r"""(?<![\w.+/-])(?P<local>\w[\w.+'-]{0,63}+)(?:@|%40)
    (?P<domain>(?:\w[\w-]{0,62}+\.){1,8}[^\W\d_][\w-]{1,62}+)(?![@/:]\w)
    |(?<!\w)(?:(?:[\w+-]{1,32}+[ ]dot[ ]){1,3}[\w+-]{1,32}+[ ]at[ ][\w-]{1,32}+
        |[\w.+-]{1,64}+[ ]at[ ](?:gmail|googlemail|outlook|hotmail|yahoo|icloud|proton(?:mail)?|gmx|aol)\b)
        (?:[ ](?:dot|\.)[ ][\w-]{2,32}+){1,3}
    |(?<!\w)[\w.+-]{1,64}+\s?[(\[]\s?at\s?[)\]]\s?[\w-]{1,63}+(?:\s?[(\[]\s?dot\s?[)\]]\s?[\w-]{2,63}+){1,4}""",
    re.VERBOSE | re.IGNORECASE,
)
"""An address, also one whose `@` is written as in a URL, or one that is spelled out: `anna (at) example (dot) org`.
One that is read out, "anna dot berg at example dot org", must have a dot before "at", or be at a known provider: people
also meet at places. No address is followed by a path, as in `git@github.com:acme/shop.git`."""

_IDEOGRAPHS = re.compile(r"[⺀-퟿豈-﫿]+")
"""Scripts that are written without spaces: what stands before or after an address may be the sentence."""

_FILES = re.compile(
    r"\.(?:avif|bmp|css|gif|html?|ico|jpe?g|js|json|md|mp[34]|pdf|png|py|svg|tiff?|ts|txt|webp|zip)$", re.I
)
"""The ends of file names such as `logo@2x.png`."""


def find_emails(text: str) -> Iterator[SecretSpan]:
    """Yield the e-mail addresses in a text."""
    if not any(sign in text for sign in ("@", "%40", "at)", "at]", "at )", "AT)", "AT]", " dot ")):
        return
    for match in _ADDRESS.finditer(text):
        start, end = match.span()
        if match["local"] is not None:
            if _FILES.search(match["domain"]):
                continue
            start, end = _without_sentence(match)
        yield SecretSpan(start, end, "EMAIL")


def _without_sentence(match: re.Match[str]) -> tuple[int, int]:
    """Return where the address stands, without the ideographs that it is written together with."""
    start, end = match.span()
    before = list(_IDEOGRAPHS.finditer(match["local"]))
    if before and before[-1].end() < len(match["local"]):
        start += before[-1].end()
    ending = match["domain"].rpartition(".")[2]
    after = _IDEOGRAPHS.search(ending)
    if after is not None and after.start() > 0:
        end -= len(ending) - after.start()
    return start, end


_GROUPS_OF_DIGITS = re.compile(r"(?<![\w.,])\d[\d .\n-]{10,}+")
"""Groups of digits, of which some together may be the number of a card."""

_GROUP = re.compile(r"\d+")

_ISSUERS = re.compile(
    r"""4\d{12}(?:\d{3}){0,2}                                                   # Visa
    |(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}           # Mastercard
    |3[47]\d{13}                                                                # American Express
    |3(?:0[0-5]|[689]\d)\d{11,16}                                               # Diners Club
    |(?:6011|64[4-9]\d|65\d\d|62\d\d|81\d\d)\d{12,15}                           # Discover, UnionPay
    |35(?:2[89]|[3-8]\d)\d{12,15}                                               # JCB
    |(?:50|5[6-8]|6[0-9])\d{12,17}                                              # Maestro and others
    |220[0-4]\d{12,15}                                                          # Mir""",
    re.VERBOSE,
)
"""How the numbers of cards begin and how long they are (ISO/IEC 7812). A book, an article or a moment in milliseconds
begins otherwise."""

_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \n-]?[A-Za-z0-9]){11,30}+")
"""The beginning of an IBAN (ISO 13616), perhaps with the words after it."""

_SHORTEST_CARD, _LONGEST_CARD = 13, 19

_MOST_BESIDE = 7
"""How many other groups of digits may stand around a card: when it expires, digit by digit, and its check number."""

_Group = tuple[int, str]
"""Where digits begin in a text, and the digits."""


def find_cards(text: str) -> Iterator[SecretSpan]:
    """Yield the numbers of payment cards, by issuer and checksum. Their groups may be separated."""
    from stdnum import luhn

    for run in _GROUPS_OF_DIGITS.finditer(text):
        groups = [(run.start() + group.start(), group[0]) for group in _GROUP.finditer(run[0])]
        first = anchor = 0
        while first < len(groups):
            used = (
                _card_length(text, groups, first, luhn.is_valid)
                if first == anchor or not _is_short(groups[first])
                else 0
            )
            if used and not _is_of_list(text, groups, first, used, anchor):
                start, (last_start, last) = groups[first][0], groups[first + used - 1]
                yield SecretSpan(start, last_start + len(last), "CARD")
                anchor = first + used
            first += used or 1


def _is_short(group: _Group) -> bool:
    """Whether this may be a part of a number that is read out digit by digit, or in pairs."""
    return len(group[1]) <= 2


def _is_of_list(text: str, groups: Sequence[_Group], first: int, used: int, anchor: int) -> bool:
    """Whether a number is rather made of members of a list or a table, in which some always look like a card together.
    `anchor` is where a card may begin in any case: at the beginning, or behind another card."""
    inside = _between(text, groups, first + 1) if used > 1 else ""
    if inside != "." and text.endswith(".", 0, groups[first][0]):
        return True  # the digits of a fraction
    if len(groups) - used <= _MOST_BESIDE:
        return False
    return _is_short(groups[first]) or (first > anchor and _between(text, groups, first) == inside)


def _between(text: str, groups: Sequence[_Group], index: int) -> str:
    """Return what separates a group from the one before it."""
    start, digits = groups[index - 1]
    return text[start + len(digits) : groups[index][0]]


def _card_length(text: str, groups: Sequence[_Group], first: int, is_valid: Callable[[str], bool]) -> int:
    """Return how many groups from the first on are the number of a card, or 0."""
    digits, separators = "", set()
    for count, (_, group) in enumerate(groups[first : first + _LONGEST_CARD], 1):
        digits += group
        if len(digits) > _LONGEST_CARD:
            break
        if count > 1:
            separators.add(_between(text, groups, first + count - 1))
        if len(digits) < _SHORTEST_CARD or not _ISSUERS.fullmatch(digits) or not is_valid(digits):
            continue
        if _is_grouped(separators, [one for _, one in groups[first : first + count]]):
            return count
    return 0


def _is_grouped(separators: set[str], groups: list[str]) -> bool:
    """Whether groups of digits are written as those of one number."""
    if len(separators) <= 1 and all(len(one) == 1 for one in separators):
        return (
            len(groups) == 1
            or min(map(len, groups[:-1])) >= 3
            or set(map(len, groups)) == {1, 2}
            or _are_single(groups)
        )
    return all(len(one) == 4 for one in groups[:-1]) and all(len(one.strip(" ")) <= 1 for one in separators)


def _are_single(groups: list[str]) -> bool:
    return all(len(one) <= 2 for one in groups)


def find_accounts(text: str) -> Iterator[SecretSpan]:
    """Yield the numbers of bank accounts (IBAN), by country, length and checksum."""
    from stdnum import iban

    for match in _ACCOUNT.finditer(text):
        length = _account_length(match[0][:2].upper())
        places = [place for place, character in enumerate(match[0]) if character.isalnum()][:length]
        if length and len(places) == length:
            end = places[-1] + 1
            if iban.is_valid(match[0][:end].replace("\n", "")) and not match[0][end : end + 1].isalnum():
                yield SecretSpan(match.start(), match.start() + end, "IBAN")


@cache
def _account_length(country: str) -> int:
    """Return how many characters an IBAN of this country has, or 0 if there are none."""
    from stdnum import numdb

    properties = numdb.get("iban").info(country)[0][1]
    structure = properties.get("bban", "")
    return 4 + sum(map(int, re.findall(r"(\d+)!", structure))) if structure else 0


_INTERNATIONAL = re.compile(r"(?<![\w.+(])\(?(?P<sign>\+|00)[ ]?(?P<rest>\(?\d[\d ().\-/]{5,22}\d)(?![\w])")
_AMERICAN = re.compile(
    r"(?<![\w.$€£-])(?<!\d[ ,])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-]|[.,]\d| ?%)"
)
_NAMED = re.compile(
    r"""\b(?:(?:tele)?phones?|tel|mobile|mob|cell(?:phone)?|gsm|fax|whatsapp|signal|handy|telefon\w*|rufnummer|telefono
    |teléfono|téléphone|móvil|celular|mobil|tlf|tfn|puh(?:elin)?|puhelinnumero\w*|numero\w*|soita|ring|call|text|dial|sms
    |(?:phone[ ])?number|电话|手机|電話)[.:)]{0,2}[\s:]{0,3}
    (?:(?:me|us|him|her|them|is|at|on|no\.?|nr\.?|number|numerosta|numeroon|to|the|my|office|home|work)[ :]{1,2}){0,4}+
    (?P<secret>\(?\d[\d ()./-]{5,18}\d)(?![\w-]|[.,]\d)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A number behind a word for telephones, perhaps with a few words between them."""

_NO_PHONE = re.compile(
    r"""(?:\b(?:order|invoice|ticket|case|part|serial|item|model|sku|reference|tracking)s?\b
    (?:[ ]?(?:number|no\.?|nr\.?|id))?[ :\#]{0,3}|\#)$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What says that the number behind it is none of a telephone, although it is written like those of North America."""

_LOOKED_BACK = 30

_DATE = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?|\d\d?[-./]\d\d?[-./]\d{4}")


def find_phones(text: str) -> Iterator[SecretSpan]:
    """Yield the telephone numbers in a text."""
    for match in _INTERNATIONAL.finditer(text):
        if _is_number("+" + match["rest"], "ZZ", strictly=match["sign"] == "00"):
            yield SecretSpan(*match.span(), "PHONE")
    for match in _AMERICAN.finditer(text):
        is_named = _NO_PHONE.search(text, max(0, match.start() - _LOOKED_BACK), match.start())
        if not is_named and _is_number(match[0], "US", strictly=True):
            yield SecretSpan(*match.span(), "PHONE")
    for match in _NAMED.finditer(text):
        digits = sum(map(str.isdigit, match["secret"]))
        if 7 <= digits <= 13 and not _DATE.fullmatch(match["secret"]):
            yield SecretSpan(*match.span("secret"), "PHONE")


def _is_number(text: str, region: str, *, strictly: bool) -> bool:
    from phonenumbers import NumberParseException, is_possible_number, is_valid_number, parse

    try:
        number = parse(text, region)
    except NumberParseException:
        return False
    return is_valid_number(number) if strictly else is_possible_number(number)
