"""Requests with signatures."""

from __future__ import annotations

import json
from typing import Any

from reput.remoting.acl import ACCESS_KEY, SIGNATURE, signature
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import Client, texts

#: Passwords of tests. No log and no error may have them.
ROOT_PASSWORD, ALICE_PASSWORD = "root-secret-of-tests", "alice-secret-of-tests"
SECRETS = (ROOT_PASSWORD, ALICE_PASSWORD)
AUTHENTICATION = {
    "authenticationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_PASSWORD}),
}
AUTHORIZATION = AUTHENTICATION | {"authorizationEnabled": True}


def signed(command: RemotingCommand, user: str, password: str) -> RemotingCommand:
    """A request that a user has signed."""
    fields = (command.ext_fields or {}) | {ACCESS_KEY: user}
    command.ext_fields = fields | {SIGNATURE: signature(fields, bytes(command.body), password)}
    return command


async def ask_as(client: Client, user: str, password: str, code: int, body: Any = None, **fields: object) -> Any:
    """The answer to a request of a user's; a body that is no bytes is JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    command = signed(RemotingCommand(code, ext_fields=texts(fields), body=data), user, password)
    return await client.begin_all([command])[0]


async def as_root(client: Client, code: int, body: Any = None, **fields: object) -> Any:
    """The answer to a request of the super user's, which is to succeed."""
    answer = await ask_as(client, "root", ROOT_PASSWORD, code, body, **fields)
    assert answer.code == 0, answer
    return answer


async def make_alice(
    client: Client, *entries: dict[str, Any], policy_type: str = "Custom", name: str = "alice"
) -> None:
    """A normal user with these policy entries."""
    if json.loads(bytes((await as_root(client, RequestCode.AUTH_GET_USER, username=name)).body) or b"null") is None:
        await as_root(client, RequestCode.AUTH_CREATE_USER, {"password": ALICE_PASSWORD}, username=name)
    if entries:
        body = {"subject": f"User:{name}", "policies": [{"policyType": policy_type, "entries": list(entries)}]}
        await as_root(client, RequestCode.AUTH_CREATE_ACL, body, subject=f"User:{name}")


def entry(resource: str, *actions: str, decision: str = "Allow", ips: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, "sourceIps": list(ips)}
