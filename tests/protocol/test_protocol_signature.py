"""ACL signatures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol import signature


def test_known_signature() -> None:
    # RFC 2202, test case 2 of HMAC-SHA1: effcdf6ae5eb2fa2d27416d5f184df9c259a7c79
    assert signature.sign(b"what do ya want for nothing?", "Jefe") == "7/zfauXrL6LSdBbV8YTfnCWafHk="


def test_content_is_in_the_order_of_the_keys() -> None:
    fields = {"b": "2", "a": "1", "B": "0", "Signature": "x", "é": "4", "\U0001f600": "5", "\uffee": "6"}
    # Java sorts by UTF-16 units: the surrogates of U+1F600 come before U+FFEE.
    assert signature.content(fields, b"body") == b"012456body"


def test_signed_fields_are_accepted() -> None:
    fields = signature.sign_fields({"topic": "T"}, b"body", "access", "secret", "token")
    assert fields["AccessKey"] == "access"
    assert fields["SecurityToken"] == "token"
    assert signature.is_signed_by(fields, b"body", "secret")
    assert not signature.is_signed_by(fields, b"body2", "secret")
    assert not signature.is_signed_by(fields, b"body", "secret2")
    assert not signature.is_signed_by({**fields, "topic": "U"}, b"body", "secret")
    assert not signature.is_signed_by({**fields, "extra": "U"}, b"body", "secret")
    assert not signature.is_signed_by({"topic": "T"}, b"body", "secret")


def test_both_contents_of_a_unique_key_query_are_accepted() -> None:
    fields = signature.sign_fields({"_UNIQUE_KEY_QUERY": "true", "topic": "T"}, b"", "access", "secret")
    assert signature.is_signed_by(fields, b"", "secret")
    without = signature.sign_fields({"topic": "T"}, b"", "access", "secret")
    assert signature.is_signed_by({**without, "_UNIQUE_KEY_QUERY": "true"}, b"", "secret")
    assert not signature.is_signed_by({**without, "_UNIQUE_KEY_QUERY": "true"}, b"", "other")


@given(st.dictionaries(st.text(), st.text()), st.binary(), st.text(min_size=1), st.text(min_size=1))
def test_any_fields(fields: dict[str, str], body: bytes, access_key: str, secret_key: str) -> None:
    signed = signature.sign_fields(fields, body, access_key, secret_key)
    assert signature.is_signed_by(signed, body, secret_key)
    assert not signature.is_signed_by(signed, body + b"x", secret_key)
