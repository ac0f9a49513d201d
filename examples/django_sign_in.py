"""A Django site whose users sign in to a protected MCP server, each with tokens of their own, kept in the database.

Run it with `python examples/django_sign_in.py URL` (it needs `pip install django`), URL being that of the server, and
open the address it prints. Nothing here is secret or real: who opens /as/ada is ada.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from tempfile import TemporaryDirectory
from threading import get_ident
from typing import Any
from wsgiref.simple_server import make_server

from snodo_client import Client, McpError, Ok
from snodo_client.auth import OAuth

try:
    import django
    from django.conf import settings
    from django.contrib.auth import login
    from django.contrib.auth.decorators import login_required
    from django.core.cache import cache
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.db import connection, models, transaction
    from django.http import HttpRequest, HttpResponse, JsonResponse
    from django.shortcuts import redirect
    from django.urls import path, reverse
except ImportError:
    print("this example needs Django: pip install django")
    sys.exit(0)

URL = sys.argv[1] if len(sys.argv) > 1 else "https://mcp.example.com/mcp"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
FOLDER = TemporaryDirectory()

# -- what a project has in settings.py

settings.configure(
    ALLOWED_HOSTS=["localhost"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{FOLDER.name}/db.sqlite3"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", __name__],
    LOGIN_URL="/as/ada",
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for this example only",
    USE_TZ=True,
)
django.setup()

# -- models.py


class McpToken(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    key = models.CharField(max_length=500)
    value = models.TextField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "key"], name="one_value_per_key"),)


# -- tokens.py


class UserTokens:
    """The token store of one user, for one request."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.thread = get_ident()

    def get(self, key: str) -> str | None:
        values = McpToken.objects.filter(user=self.user, key=key).values_list("value", flat=True)
        return self.done(values.first)

    def set(self, key: str, value: str) -> None:
        self.done(lambda: self.replace(key, value))

    def delete(self, key: str) -> None:
        self.done(McpToken.objects.filter(user=self.user, key=key).delete)

    @transaction.atomic(durable=True)  # a rollback would bring back a refresh token that was used
    def replace(self, key: str, value: str) -> None:
        McpToken.objects.update_or_create(user=self.user, key=key, defaults={"value": value})

    def done(self, query: Callable[[], Any]) -> Any:
        try:
            return query()
        finally:
            if get_ident() != self.thread:  # one of the client's, for which Django closes nothing
                connection.close()

    @contextmanager
    def lock(self, key: str, wait: Callable[[], float]) -> Iterator[None]:
        name = f"mcp-{self.user.pk}-{sha256(key.encode()).hexdigest()}"
        while not cache.add(name, 1, timeout=60):
            if wait() <= 0:
                raise TimeoutError
            time.sleep(0.1)
        try:
            yield
        finally:
            cache.delete(name)


# -- views.py


def oauth_of(request: HttpRequest) -> OAuth:
    callback_url = request.build_absolute_uri(reverse("callback"))
    return OAuth(sign_in="never", store=UserTokens(request.user), redirect_uri=callback_url, client_name="Shop")


@login_required
def tool(request: HttpRequest, name: str) -> HttpResponse:
    oauth = oauth_of(request)
    just_now = request.session.pop("signed_in", None)  # for these scopes
    try:
        with Client.connect(URL, auth=oauth) as client:
            outcome = client.call_tool(name)
    except McpError as error:
        outcome = error
    match outcome:
        case Ok(result):
            return JsonResponse({"user": request.user.username, "content": result["content"]})
        case McpError(reason="sign_in_required", data={"scope": scope}) if scope != just_now:
            begun = oauth.begin(URL, scope=scope)
            if isinstance(begun, McpError):
                return HttpResponse(begun.message, status=502, content_type="text/plain")
            request.session["sign_in"] = {"state": begun.state, "scope": scope, "next": request.path}
            return redirect(begun.url)
    return HttpResponse(str(outcome), status=502, content_type="text/plain")


@login_required
def callback(request: HttpRequest) -> HttpResponse:
    begun = request.session.pop("sign_in", None)
    if begun is None:
        return HttpResponse("no sign-in was begun here", status=400, content_type="text/plain")
    outcome = oauth_of(request).finish(request.build_absolute_uri(), begun["state"])
    if isinstance(outcome, McpError):
        return HttpResponse(outcome.message, status=403, content_type="text/plain")
    request.session["signed_in"] = begun["scope"]
    return redirect(begun["next"])


# -- the rest is in the place of real pages


def enter(request: HttpRequest, name: str) -> HttpResponse:
    from django.contrib.auth.models import User

    login(request, User.objects.get_or_create(username=name)[0])
    return redirect("/")


def front(request: HttpRequest) -> HttpResponse:
    return redirect("tool", "whoami")


urlpatterns = [
    path("", front),
    path("as/<slug:name>", enter),
    path("tool/<slug:name>", tool, name="tool"),
    path("mcp/callback", callback, name="callback"),
]


def main() -> None:
    with FOLDER:
        if len(sys.argv) == 1:
            print("usage: python examples/django_sign_in.py URL [PORT]")
            return
        call_command("migrate", verbosity=0)
        with connection.schema_editor() as editor:  # a project has a migration for it
            editor.create_model(McpToken)
        with make_server("localhost", PORT, get_wsgi_application()) as server:
            print(f"http://localhost:{server.server_port}/", flush=True)
            server.serve_forever()


if __name__ == "__main__":
    main()
