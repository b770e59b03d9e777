"""The built-in rules together."""

from __future__ import annotations

from ..rule import SecretRule
from .api_keys import find_api_keys
from .codes import CodeRule
from .credentials import CredentialRule
from .emails import find_emails
from .headers import HeaderRule
from .hexadecimal import find_long_hexadecimals
from .numbers import find_accounts, find_cards
from .phones import find_phones
from .private_keys import find_private_keys
from .web_addresses import find_secrets_of_addresses
from .web_tokens import find_web_tokens

BUILT_IN_RULES: tuple[SecretRule, ...] = (
    find_private_keys,
    find_web_tokens,
    find_api_keys,
    find_cards,
    find_accounts,
    find_emails,
    HeaderRule(),
    find_secrets_of_addresses,
    CredentialRule(),
    CodeRule(),
    find_long_hexadecimals,
    find_phones,
)
"""Where two rules find the same secret, the label is that of the first."""
