"""Who may do what: tokens of programs, signed-in browsers, OAuth clients, OpenID Connect."""

import base64
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from irtcat._common.checks import InputError
from irtcat.service.accounts import accounts, clients, oidc
from irtcat.service.accounts.credentials import csrf_token, service_cookie
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.base.errors import ConflictError, NotFoundError, UnauthorizedError
from irtcat.service.outbox.audit import audit_entries

PASSWORD = "correct horse battery"


@pytest.fixture
def service(database, clock):
    it = open_service(database, create=True, clock=clock)
    accounts.add_account(it, "ada", password=PASSWORD, roles=["proctor"], actor="test")
    accounts.add_account(it, "root", password=PASSWORD, roles=["admin"], actor="test")
    return it


@pytest.fixture
def http(service):
    return TestClient(create_app(service), base_url="https://testserver")


def bearer(http, name="ada"):
    reply = http.post("/api/v1/tokens", json={"name": name, "password": PASSWORD})
    assert reply.status_code == 201
    return {"Authorization": f"Bearer {reply.json()['token']}"}


@pytest.mark.slow
def test_tokens_of_programs(http, clock):
    headers = bearer(http)
    assert http.get("/api/v1/me", headers=headers).json() == {"name": "ada", "roles": ["proctor"]}
    clock.move(366 * 24 * 3600)
    assert http.get("/api/v1/me", headers=headers).status_code == 401
    headers = bearer(http)
    assert http.delete("/api/v1/tokens/current", headers=headers).status_code == 204
    assert http.get("/api/v1/me", headers=headers).status_code == 401


@pytest.mark.slow_cases("sqlite-headers0", "sqlite-headers1", "sqlite-headers2")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer " + "x" * 300},
        {"Authorization": "Basic YTpi"},
        {"Authorization": b"Bearer \xc3\xa4"},
        {"Cookie": "{staff}=guess"},
        {"Cookie": "{staff}=\xc3\xa4"},
    ],
)
def test_no_valid_credentials(http, service, headers):
    staff = service_cookie(service, "staff")
    headers = {
        name: value.replace("{staff}", staff).encode("latin-1") if name == "Cookie" else value
        for name, value in headers.items()
    }
    reply = http.get("/api/v1/me", headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == 'Bearer realm="irtcat"'
    assert reply.json()["title"] == "Not signed in"


def test_wrong_passwords(http, service):
    for name, password in (("ada", "wrong"), ("nobody", PASSWORD), ("ada' OR 1=1 --", "x")):
        reply = http.post("/api/v1/tokens", json={"name": name, "password": password})
        assert reply.status_code == 401
        assert reply.json()["detail"] == "The name or the password is wrong."
    assert audit_entries(service)["action"].tolist()[:3] == ["sign-in refused"] * 3


def test_a_signed_in_browser_needs_the_token_against_forged_requests(http, service):
    reply = http.post("/api/v1/sign-in", json={"name": "ada", "password": PASSWORD})
    cookie = reply.headers["set-cookie"]
    for part in (f"{service_cookie(service, 'staff')}=", "HttpOnly", "SameSite=strict", "Secure"):
        assert part in cookie
    assert http.get("/api/v1/me").json()["name"] == "ada"
    assert http.delete("/api/v1/tokens/current").status_code == 403
    secret = http.cookies[service_cookie(service, "staff")]
    wrong = {"X-CSRF-Token": csrf_token(service, "another")}
    assert http.delete("/api/v1/tokens/current", headers=wrong).status_code == 403
    right = {"X-CSRF-Token": csrf_token(service, secret)}
    assert http.delete("/api/v1/tokens/current", headers=right).status_code == 204
    assert http.get("/api/v1/me").status_code == 401


def test_a_browser_is_not_signed_in_from_another_site(http):
    body = {"name": "ada", "password": PASSWORD}
    reply = http.post("/api/v1/sign-in", json=body, headers={"Sec-Fetch-Site": "cross-site"})
    assert reply.status_code == 403
    assert "set-cookie" not in reply.headers


def test_a_cookie_is_no_bearer_token_and_the_reverse(http, service):
    program = bearer(http)["Authorization"].split()[1]
    cookie = {"Cookie": f"{service_cookie(service, 'staff')}={program}"}
    assert http.get("/api/v1/me", headers=cookie).status_code == 401
    account = accounts.sign_in(service, "ada", PASSWORD)
    browser = accounts.issue_token(service, account, kind=accounts.BROWSER)
    headers = {"Authorization": f"Bearer {browser}"}
    assert http.get("/api/v1/me", headers=headers).status_code == 401


def test_changes_of_accounts(http, service):
    headers = bearer(http)
    accounts.change_account(service, "ada", roles=["auditor"], actor="test")
    assert http.get("/api/v1/me", headers=headers).status_code == 401
    assert http.get("/api/v1/me", headers=bearer(http)).json()["roles"] == ["auditor"]
    accounts.change_account(service, "ada", is_open=False, actor="test")
    with pytest.raises(UnauthorizedError):
        accounts.sign_in(service, "ada", PASSWORD)
    accounts.change_account(service, "ada", is_open=True, actor="test")
    accounts.sign_in(service, "ada", PASSWORD)
    with pytest.raises(ConflictError, match="role admin"):
        accounts.change_account(service, "root", is_open=False, actor="test")
    with pytest.raises(ConflictError, match="role admin"):
        accounts.change_account(service, "root", roles=["author"], actor="test")
    assert accounts.sign_in(service, "root", PASSWORD).roles == ("admin",)
    with pytest.raises(NotFoundError):
        accounts.change_account(service, "nobody", is_open=True, actor="test")
    table = accounts.account_table(service).set_index("name")
    assert table.loc["root", "roles"] == ["admin"]
    assert PASSWORD not in table.to_string()


# OAuth 2.0 client credentials


@pytest.fixture
def client(service):
    return clients.add_client(service, "TAO", actor="test")


def ask(http, data, **options):
    return http.post("/oauth/token", data=data, **options)


GRANT = {"grant_type": "client_credentials"}


@pytest.mark.slow
def test_access_tokens(http, service, client):
    name, secret = client
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    in_header = ask(http, GRANT, headers={"Authorization": f"Basic {basic}"})
    in_body = ask(http, {**GRANT, "client_id": name, "client_secret": secret})
    for reply in (in_header, in_body):
        assert reply.status_code == 200
        assert reply.headers["cache-control"] == "no-store"
        assert set(reply.json()) == {"access_token", "token_type", "expires_in", "scope"}
        assert reply.json()["token_type"] == "bearer"
        found = clients.client_of_token(service, reply.json()["access_token"])
        assert found == clients.Client(name, tuple(clients.SCOPES))
    one = next(iter(clients.SCOPES))
    reply = ask(http, {**GRANT, "client_id": name, "client_secret": secret, "scope": one})
    narrow = clients.client_of_token(service, reply.json()["access_token"])
    narrow.require("section")
    with pytest.raises(InputError, match="scope/session"):
        narrow.require("session")


@pytest.mark.slow
def test_tokens_end(http, service, client, monkeypatch):
    name, secret = client
    reply = ask(http, {**GRANT, "client_id": name, "client_secret": secret})
    token = reply.json()["access_token"]
    monkeypatch.setattr(clients, "LASTS", -1)
    with pytest.raises(UnauthorizedError):
        clients.client_of_token(service, token)
    monkeypatch.undo()
    clients.client_of_token(service, token)
    with pytest.raises(UnauthorizedError):
        clients.client_of_token(service, token[:-2])
    clients.close_client(service, name, actor="test")
    with pytest.raises(UnauthorizedError):
        clients.client_of_token(service, token)
    with pytest.raises(NotFoundError):
        clients.close_client(service, "c_x", actor="test")
    assert secret not in clients.client_table(service).to_string()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "status", "error"),
    [
        ({}, 400, "unsupported_grant_type"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        (GRANT, 401, "invalid_client"),
        ({**GRANT, "client_id": "c_x", "client_secret": "' OR '1'='1"}, 401, "invalid_client"),
    ],
)
def test_refused_tokens(http, data, status, error):
    reply = ask(http, data)
    assert (reply.status_code, reply.json()["error"]) == (status, error)
    assert ("WWW-Authenticate" in reply.headers) == (status == 401)


def test_unknown_scopes(http, client):
    name, secret = client
    data = {**GRANT, "client_id": name, "client_secret": secret, "scope": "all"}
    assert ask(http, data).json()["error"] == "invalid_scope"
    for header in ("Basic ", "Basic !!", "Bearer x", "Basic /////w=="):
        reply = ask(http, GRANT, headers={"Authorization": header})
        assert (reply.status_code, reply.json()["error"]) == (401, "invalid_client")


# OpenID Connect

ISSUER = "https://id.example.org"


class IdentityProvider:
    """A small provider: it checks PKCE and signs tokens, or does one thing wrong."""

    def __init__(self, service):
        self.service = service
        self.key = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
        self.other = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
        self.wrong, self.codes = {}, {}

    def authorize(self, address):
        """What the person's browser is sent back with after they signed in."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["scope"] == "openid"
        assert asked["code_challenge_method"] == "S256"
        self.codes["code1"] = asked
        return {"code": "code1", "state": asked["state"]}

    def __call__(self, request):
        path = request.url.path
        if path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=self.settings())
        if path == "/keys":
            return httpx.Response(200, json={"keys": [self.key.as_dict(private=False)]})
        assert path == "/token"
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        asked = self.codes.pop(form["code"], None)
        if asked is None or not request.headers["authorization"].startswith("Basic "):
            return httpx.Response(400, json={"error": "invalid_grant"})
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        if create_s256_code_challenge(form["code_verifier"]) != asked["code_challenge"]:
            return httpx.Response(400, json={"error": "invalid_grant"})
        assert form["redirect_uri"] == asked["redirect_uri"]
        return httpx.Response(
            200, json={"access_token": "x", "token_type": "Bearer", "id_token": self.token(asked)}
        )

    def settings(self):
        return {
            "issuer": self.wrong.get("issuer", ISSUER),
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }

    def token(self, asked):
        now = int(self.service.clock()[0].timestamp())
        claims = {
            "iss": ISSUER,
            "aud": asked["client_id"],
            "sub": "ada-at-example",
            "nonce": asked["nonce"],
            "iat": now,
            "exp": now + 300,
            **self.wrong.get("claims", {}),
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        algorithm = self.wrong.get("alg", "RS256")
        if algorithm == "none":
            parts = [b'{"alg":"none"}', str(claims).replace("'", '"').encode(), b""]
            return ".".join(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts)
        key = self.other if self.wrong.get("key") else self.key
        return jwt.encode({"alg": algorithm, "kid": "k1"}, claims, key)


@pytest.fixture
def identities(service):
    return IdentityProvider(service)


@pytest.fixture
def browser(service, identities):
    provider = oidc.Provider(
        ISSUER, "irtcat", "s3cret", "Example", transport=httpx.MockTransport(identities)
    )
    subject = oidc.subject_of(ISSUER, "ada-at-example")
    accounts.add_account(service, "ada2", roles=["scorer"], actor="test", subject=subject)
    app = create_app(service, oidc=provider)
    return TestClient(app, base_url="https://testserver", follow_redirects=False)


def sign_in(browser, identities, **changes):
    sent = browser.get("/auth/oidc/login")
    assert sent.status_code == 303
    assert sent.headers["location"].startswith(f"{ISSUER}/authorize?")
    assert "SameSite=lax" in sent.headers["set-cookie"]
    back = identities.authorize(sent.headers["location"])
    return browser.get("/auth/oidc/callback", params={**back, **changes})


def test_sign_in_by_openid_connect(browser, identities):
    done = sign_in(browser, identities)
    assert done.status_code == 200
    assert "irtcat_staff_" in done.headers["set-cookie"]
    assert browser.get("/api/v1/me").json() == {"name": "ada2", "roles": ["scorer"]}
    assert "irtcat_oidc" not in browser.cookies


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"claims": {"iss": "https://evil.example.org"}},
        {"claims": {"aud": "another"}},
        {"claims": {"aud": ["irtcat", "another"]}},
        {"claims": {"azp": "another"}},
        {"claims": {"nonce": "replayed"}},
        {"claims": {"nonce": None}},
        {"claims": {"exp": 1_000_000}},
        {"claims": {"sub": None}},
        {"claims": {"sub": "somebody-else"}},
        {"key": True},
        {"alg": "none"},
        {"issuer": "https://evil.example.org"},
    ],
    ids=str,
)
def test_identities_that_are_not_verified(browser, identities, wrong):
    sent = browser.get("/auth/oidc/login")
    back = identities.authorize(sent.headers["location"])
    identities.wrong = wrong
    done = browser.get("/auth/oidc/callback", params=back)
    assert done.status_code == 401
    assert "irtcat_staff" not in done.headers.get("set-cookie", "")


def test_a_sign_in_that_began_elsewhere(browser, identities):
    assert sign_in(browser, identities, state="forged").status_code == 401
    assert sign_in(browser, identities, code="forged").status_code == 401
    sent = browser.get("/auth/oidc/login")
    back = identities.authorize(sent.headers["location"])
    browser.cookies.clear()
    assert browser.get("/auth/oidc/callback", params=back).status_code == 401


def test_a_closed_account_does_not_sign_in(browser, identities, service):
    accounts.change_account(service, "ada2", is_open=False, actor="test")
    assert sign_in(browser, identities).status_code == 401


@pytest.mark.slow
def test_without_a_provider(http):
    assert http.get("/auth/oidc/login").status_code == 404


def test_a_provider_that_cannot_be_reached(service):
    def fails(request):
        raise httpx.ConnectError("no route")

    provider = oidc.Provider(ISSUER, "irtcat", transport=httpx.MockTransport(fails))
    http = TestClient(create_app(service, oidc=provider), base_url="https://testserver")
    assert http.get("/auth/oidc/login").status_code == 401


def test_addresses_of_providers():
    with pytest.raises(InputError, match="https://"):
        oidc.Provider("http://id.example.org", "irtcat")
    with pytest.raises(InputError, match="client_id"):
        oidc.Provider.from_environment({"IRTCAT_OIDC_ISSUER": ISSUER})
    assert oidc.Provider.from_environment({}) is None
