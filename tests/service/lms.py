"""A learning platform (LTI 1.3) that the tests run in process: keys, tokens, a gradebook."""

import functools
import json
from urllib.parse import parse_qs, urlsplit

import httpx
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

ISSUER = "https://lms.example"
CLIENT = "client-1"
DEPLOYMENT = "deployment-1"
TOOL = "https://tests.example"
CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
DEEP_LINKING = "https://purl.imsglobal.org/spec/lti-dl/claim/"
GRADES = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"
SCORE = "https://purl.imsglobal.org/spec/lti-ags/scope/score"
ROLE = "http://purl.imsglobal.org/vocab/lis/v2/membership#"
LINE_ITEM = f"{ISSUER}/lineitems/7?type_id=3"

URLS = {"auth_url": f"{ISSUER}/auth", "token_url": f"{ISSUER}/token", "jwks_url": f"{ISSUER}/keys"}


def new_key(name="key-1"):
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@functools.cache
def platform_key():
    """The first key of every platform: to make one takes as long as most of the tests."""
    return new_key()


class Lms:
    """A platform as 1EdTech's specifications describe one; written without the code under test.

    Attributes:
        scores: what its gradebook got, as it was sent.
        answers: statuses that its gradebook answers with, before 200.
        requests: all requests, as method and path.
    """

    def __init__(self, clock):
        self.clock, self.key = clock, platform_key()
        self.published = [self.key]
        self.scores, self.answers, self.requests, self.assertions = [], [], [], []
        self.tool_keys = None
        self.token = "token-1"
        self.transport = httpx.MockTransport(self._answer)

    def now(self):
        return int(self.clock()[0].timestamp())

    def _answer(self, request):
        self.requests.append(f"{request.method} {request.url.path}")
        if request.url.path == "/keys":
            return httpx.Response(200, json=KeySet(self.published).as_dict(private=False))
        if request.url.path == "/token":
            form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
            assert form["grant_type"] == "client_credentials"
            assert form["scope"] == SCORE
            keys = KeySet.import_key_set(self.tool_keys)
            claims = jwt.decode(form["client_assertion"], keys, algorithms=["RS256"]).claims
            assert claims["iss"] == claims["sub"] == CLIENT
            assert claims["aud"] == URLS["token_url"]
            assert claims["iat"] <= self.now() < claims["exp"]
            self.assertions.append(claims["jti"])
            answer = {"access_token": self.token, "token_type": "Bearer", "expires_in": 3600}
            return httpx.Response(200, json=answer)
        if request.url.path == "/lineitems/7/scores":
            if request.headers["Authorization"] != f"Bearer {self.token}":
                return httpx.Response(401)
            assert request.url.query == b"type_id=3"
            assert request.headers["Content-Type"] == "application/vnd.ims.lis.v1.score+json"
            status = self.answers.pop(0) if self.answers else 200
            if status == 200:
                self.scores.append(json.loads(request.content))
            return httpx.Response(status)
        return httpx.Response(404)

    def claims(self, nonce, /, **changes):
        """The claims of a launch; a change to None leaves a claim out."""
        short = {
            "version": "1.3.0",
            "message_type": "LtiResourceLinkRequest",
            "deployment_id": DEPLOYMENT,
            "target_link_uri": f"{TOOL}/lti/launch",
            "resource_link": {"id": "link-1", "title": "Week 1"},
            "roles": [f"{ROLE}Learner"],
            "custom": {},
        }
        plain = {
            "iss": ISSUER,
            "aud": CLIENT,
            "sub": "user-1",
            "iat": self.now(),
            "exp": self.now() + 300,
            "nonce": nonce,
            GRADES: {"scope": [SCORE], "lineitem": LINE_ITEM},
        }
        all_claims = plain | {f"{CLAIM}{name}": value for name, value in short.items()}
        for name, value in changes.items():
            all_claims[f"{CLAIM}{name}" if name in short else name] = value
        return {name: value for name, value in all_claims.items() if value is not None}

    def signed(self, claims, *, key=None, **header):
        key = key or self.key
        header = {"alg": "RS256", "typ": "JWT", "kid": key.kid} | header
        return jwt.encode(header, claims, key, algorithms=[header["alg"]])


class Person:
    """A browser of somebody who opens a link in the platform."""

    def __init__(self, app, lms):
        self.client, self.lms = TestClient(app, base_url=TOOL), lms
        # A form of another site is posted without the cookies.
        self.from_platform = TestClient(app, base_url=TOOL)
        lms.tool_keys = self.client.get("/lti/jwks").json()

    def login(self, **changes):
        """Go through the login; return what the platform got."""
        fields = {
            "iss": ISSUER,
            "login_hint": "hint",
            "lti_message_hint": "message hint",
            "client_id": CLIENT,
            "target_link_uri": f"{TOOL}/lti/launch",
        }
        fields = {name: text for name, text in (fields | changes).items() if text is not None}
        response = self.client.post("/lti/login", data=fields, follow_redirects=False)
        assert response.status_code == 303, response.text
        parts = urlsplit(response.headers["location"])
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == URLS["auth_url"]
        return {name: values[0] for name, values in parse_qs(parts.query).items()}

    def post(self, state, token):
        """Post a message to the tool, as the platform's page does: without cookies."""
        fields = {"state": state, "id_token": token}
        return self.from_platform.post("/lti/launch", data=fields, follow_redirects=False)

    def launch(self, test=None, custom=None, **changes):
        """The page that a launch opens."""
        sent = self.login()
        custom = ({} if test is None else {"test": test}) | (custom or {})
        claims = self.lms.claims(sent["nonce"], custom=custom, **changes)
        response = self.post(sent["state"], self.lms.signed(claims))
        if response.status_code != 303:
            return response
        self.page = response.headers["location"]
        return self.client.get(self.page)

    def start(self, page):
        """Click the button of the start page."""
        token = page.text.split('name="token" value="')[1].split('"')[0]
        return self.client.post(self.page, data={"token": token}, follow_redirects=False)
