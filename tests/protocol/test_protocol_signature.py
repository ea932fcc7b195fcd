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


# -- bound signatures --------------------------------------------------------------------------------------------------

FIELDS = {"topic": "T", "queueId": "0"}
STAMP = signature.stamp(1_700_000_000_000, b"\x01\x02")


def bound(code: int = 202, fields: dict[str, str] = FIELDS, body: bytes = b"body") -> dict[str, str]:
    return signature.sign_bound(code, fields, body, "access", "secret", "token", signed_at=STAMP)


def test_a_bound_signature_holds_for_this_request_only() -> None:
    fields = bound()
    assert fields["SignedAt"] == "1700000000000-0102"
    assert signature.is_bound_by(202, fields, b"body", "secret")
    assert signature.is_signed_by(fields, b"body", "secret"), "RocketMQ takes it, too"
    assert not signature.is_bound_by(215, fields, b"body", "secret")
    assert not signature.is_bound_by(202, fields, b"body2", "secret")
    assert not signature.is_bound_by(202, fields, b"body", "secret2")
    for name in ("topic", "SignedAt", "AccessKey", "SecurityToken"):
        assert not signature.is_bound_by(202, {**fields, name: "other"}, b"body", "secret")
        assert not signature.is_bound_by(202, {key: fields[key] for key in fields if key != name}, b"body", "secret")
    assert not signature.is_bound_by(202, {**fields, "extra": ""}, b"body", "secret")
    assert not signature.is_bound_by(202, signature.sign_fields(FIELDS, b"body", "access", "secret"), b"body", "secret")


def test_values_cannot_move_between_fields() -> None:
    """The plain signature covers the values without their names and borders."""
    for other, body in (({"topic": "T0", "queueId": ""}, b"body"), ({"topic": "T", "zueueId": "0"}, b"body")):
        assert bound()["BoundSignature"] != bound(fields=other, body=body)["BoundSignature"]
    moved = {"a": "0T"}
    assert signature.content(moved) == signature.content(FIELDS)
    assert bound(fields=moved)["BoundSignature"] != bound()["BoundSignature"]
    assert bound(fields={**FIELDS, "z": "b"}, body=b"ody")["BoundSignature"] != bound()["BoundSignature"]


def test_the_bound_signature_is_what_it_was() -> None:
    """A change of the encoding locks out all tools of other versions."""
    assert bound()["BoundSignature"] == "nhqrcxYEMTZulhFxsqEp0UocOmjSvgEfw4hoCly+9o0="


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4), st.integers(0, 999), st.binary(max_size=9)
)
def test_any_request_can_be_bound(fields: dict[str, str], code: int, body: bytes) -> None:
    signed = signature.sign_bound(code, fields, body, "access", "secret", signed_at=STAMP)
    assert signature.is_bound_by(code, signed, body, "secret")
    assert not signature.is_bound_by(code + 1, signed, body, "secret")
    assert signature.is_signed_by(signed, body, "secret")


@given(st.integers(0, 10**14), st.binary(max_size=9))
def test_stamps_are_read_back(now_ms: int, nonce: bytes) -> None:
    assert signature.stamped_ms(signature.stamp(now_ms, nonce)) == now_ms


def test_what_is_no_stamp() -> None:
    for text in ("", "5", "-5", "a-5", "1" * 16 + "-5", "\u0661-5", " 5-5"):
        assert signature.stamped_ms(text) is None
