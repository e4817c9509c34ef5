"""What a file says of who asks on the command line."""

from __future__ import annotations

import pytest

from reput.config.admin import AdminConfig
from reput.errors import ConfigError

#: What no error may have.
SECRET = "hidden-of-tests"


def test_a_file_has_keys_of_access_and_of_tls() -> None:
    text = f"""
        # who asks
        accessKey=alice
        secretKey={SECRET}
        securityToken=token
        tls.enable=true
        tls.client.trustCertPath=ca.pem
        tls.server.mode=permissive
    """
    config = AdminConfig.from_properties(text, "admin.properties")
    assert (config.access_key, config.secret_key, config.security_token) == ("alice", SECRET, "token")
    assert (config.tls_enable, config.tls_client_trust_cert_path) == (True, "ca.pem")
    assert SECRET not in repr(config)
    assert "token" not in repr(config).replace("security_token", "")


def test_the_tools_yml_of_rocketmq_is_such_a_file() -> None:
    config = AdminConfig.from_properties("# Apache\n\naccessKey: rocketmq2\nsecretKey: 12345678\n", "tools.yml")
    assert (config.access_key, config.secret_key) == ("rocketmq2", "12345678")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"accessKey=a\n={SECRET}", "f:2: no key before the value; write key=value"),
        (f"secretKey=\\u12{SECRET}", "f:1: \\u without four hexadecimal digits; a backslash is written as \\\\"),
        (f"accessKey=a\n{SECRET}", "f:2: unknown key; write accessKey=, secretKey=, or a key of TLS"),
        (f"accesKey=a\nsecretKey={SECRET}", "f:1: unknown key; did you mean accessKey?"),
        (f"secretKey={SECRET}", "f: accessKey and secretKey: give both, or neither"),
        ("accessKey=a", "f: accessKey and secretKey: give both, or neither"),
        (f"securityToken={SECRET}", "f: securityToken is given, and accessKey is not"),
        ("accessKey=a\nsecretKey=", "f:2: secretKey=******: expected a text"),
        ("tls.enable=perhaps", "f:1: tls.enable=perhaps: expected true or false"),
        ("tls.client.certPath=c", "f: tls.client.certPath is given, and tls.client.keyPath is not"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_without_a_secret(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AdminConfig.from_properties(text, "f")
    assert str(raised.value) == message
