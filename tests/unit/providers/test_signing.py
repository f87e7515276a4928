import pytest

from forebay.providers.webhook.signing import BadSigningKey, signed, signing_keys

#: The example that Standard Webhooks and its libraries are tested with.
PUBLISHED = {
    "secret": b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "timestamp": 1614265330,
    "body": b'{"test": 2432232314}',
    "signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_the_published_test_vector():
    keys = signing_keys(PUBLISHED["secret"])
    assert signed(keys, PUBLISHED["id"], PUBLISHED["timestamp"], PUBLISHED["body"]) == {
        "webhook-id": PUBLISHED["id"],
        "webhook-timestamp": "1614265330",
        "webhook-signature": PUBLISHED["signature"],
    }


def test_a_trailing_newline_is_ignored_and_a_key_without_prefix_is_used_as_is():
    assert signing_keys(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n") == signing_keys(PUBLISHED["secret"])
    assert signing_keys(b"correct horse\n") == (b"correct horse",)


def test_during_a_key_rotation_both_keys_sign():
    keys = signing_keys(PUBLISHED["secret"] + b" whsec_c2Vjb25k")
    assert keys[1] == b"second"
    signatures = signed(keys, PUBLISHED["id"], PUBLISHED["timestamp"], PUBLISHED["body"])["webhook-signature"].split()
    assert len(signatures) == 2
    assert signatures[0] == PUBLISHED["signature"]


@pytest.mark.parametrize("secret", [b"", b" \n", b"whsec_", b"whsec_not*base64"])
def test_a_malformed_key_is_refused_without_being_shown(secret):
    with pytest.raises(BadSigningKey) as caught:
        signing_keys(secret)
    assert "not*base64" not in str(caught.value)
