"""Public keys of CURVE as text: 40 characters of Z85 for 32 bytes."""

from __future__ import annotations

from quothwire.errors import error

KEY_CHARACTERS = 40
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}


def check_public_key(text: str) -> str:
    """Return a public key. Raises `RequestError` ``bad_setting``; the error never shows it.

    A person may have pasted the secret key instead.
    """
    if len(text) != KEY_CHARACTERS:
        raise error("bad_setting", f"{len(text)} characters: a public key has {KEY_CHARACTERS}", _HINT)
    if any(character not in _VALUES for character in text):
        raise error("bad_setting", "a character that is not of Z85", _HINT)
    for at in range(0, KEY_CHARACTERS, 5):
        value = 0
        for character in text[at : at + 5]:
            value = value * len(_ALPHABET) + _VALUES[character]
        if value >= 2**32:
            raise error("bad_setting", "five characters that no four bytes have in Z85", _HINT)
    return text


_HINT = "`quoth key show FILE` prints the public key of a key file"
