"""The user that a request impersonates, as SelfSubjectReview names it."""

import pytest
from support.contract_api import Api

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
USER, GROUP, UID = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid"
ACCOUNT = "system:serviceaccount:ns:name"
OF_ACCOUNTS = ["system:serviceaccounts", "system:serviceaccounts:ns"]
ALL = "system:authenticated"

Headers = list[tuple[str, str]]


async def reviewed(api: Api, headers: Headers) -> tuple[int, dict[str, object]]:
    tls = api.target.tls or True
    async with api.session.post(
        api.target.url + REVIEWS, json=REVIEW, headers=headers, ssl=tls
    ) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("headers", "groups"),
    [
        pytest.param([(USER, "mary")], [ALL], id="user"),
        pytest.param([(USER, "mary"), (GROUP, "g"), (GROUP, "h")], ["g", "h", ALL], id="groups"),
        pytest.param([(USER, "mary"), (GROUP, ALL)], [ALL], id="authenticated"),
        pytest.param([(USER, ACCOUNT)], [*OF_ACCOUNTS, ALL], id="service-account"),
        pytest.param([(USER, ACCOUNT), (GROUP, "g")], ["g", ALL], id="service-account-and-group"),
    ],
)
async def test_the_impersonated_user_has_the_groups_of_the_headers(
    api: Api, headers: Headers, groups: list[str]
) -> None:
    code, review = await reviewed(api, headers)
    name = dict(headers)[USER]
    assert (code, review["status"]) == (201, {"userInfo": {"username": name, "groups": groups}})


async def test_the_impersonated_user_has_the_uid_and_extras_of_the_headers(api: Api) -> None:
    extras = [("Impersonate-Extra-Scopes", "view"), ("Impersonate-Extra-a%2fb", "x")]
    _, review = await reviewed(api, [(USER, "mary"), (UID, "u"), *extras])
    assert review["status"] == {
        "userInfo": {
            "username": "mary",
            "uid": "u",
            "groups": [ALL],
            "extra": {"a/b": ["x"], "scopes": ["view"]},
        }
    }


@pytest.mark.parametrize("header", [GROUP, UID, "Impersonate-Extra-Scopes"])
async def test_parts_of_a_user_without_its_name_are_refused(api: Api, header: str) -> None:
    code, refused = await reviewed(api, [(header, "x")])
    assert (code, refused["reason"]) == (400, "BadRequest")
