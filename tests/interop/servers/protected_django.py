"""An authorization server: Django OAuth Toolkit with Django's own login page, for the MCP servers in this folder.

``python protected_django.py FOLDER rfc8414|oidc`` prints its issuer, whose path is ``/o``. It keeps its database in
FOLDER. With ``rfc8414`` it serves its metadata at the root with the path inserted, registers any client, and follows
RFC 9700 in everything, so that it sends ``iss``. With ``oidc`` it has only what OpenID Connect Discovery asks for,
below its own path, and knows the clients it was given. Runs in the environment of the ``apps`` peers.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import django
from django.conf import settings

USER = ("ada", "correct horse battery staple")
DESK = "desk"  # a public client that listens on this machine, at any port
CRON = ("cron", "cron secret")  # a confidential client that speaks for itself
RESOURCE_SERVER = ("resource-server", "resource server secret")
RFC_9700 = (
    "IMPLICIT_GRANT",
    "PASSWORD_GRANT",
    "PKCE_METHOD",
    "ACCESS_TOKEN_TRANSPORT",
    "AUTHZ_RESPONSE_ISS",
    "TOKEN_STORAGE",
)


def configure(folder: Path, issuer: str, *, oidc: bool) -> None:
    """The settings of the project."""
    provider: dict[str, Any] = {
        "SCOPES": {"tools": "Call tools", "admin": "Administer", "offline_access": "Stay signed in"},
        "DEFAULT_SCOPES": ["tools"],
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "OIDC_ISS_ENDPOINT": issuer,
        "OIDC_ENABLED": oidc,
        "DCR_ENABLED": not oidc,
        "DCR_REGISTRATION_PERMISSION_CLASSES": ["oauth2_provider.dcr.AllowAllDCRPermission"],
        **{f"COMPLIANT_BCP_RFC9700_{name}": not oidc for name in RFC_9700},
    }
    if not oidc:
        provider["OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED"] = ["client_secret_basic", "client_secret_post", "none"]
    apps = ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")
    settings.configure(
        SECRET_KEY="for tests alone",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "oauth2_provider"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": folder / "database",
                "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
            }
        },
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # quick
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,
        LOGIN_URL="/login/",
        STATIC_URL="/static/",
        USE_TZ=True,
        OAUTH2_PROVIDER=provider,
    )


def urls(*, oidc: bool) -> list[Any]:
    """Where the pages are."""
    from django.contrib import admin
    from django.contrib.auth.views import LoginView
    from django.urls import include, path
    from oauth2_provider import urls as toolkit

    found = [*toolkit.base_urlpatterns, *(toolkit.oidc_urlpatterns if oidc else toolkit.dcr_urlpatterns)]
    pages = [
        path("login/", LoginView.as_view(template_name="admin/login.html")),
        path("admin/", admin.site.urls),
        path("o/", include((found, toolkit.app_name))),
    ]
    return pages if oidc else [*pages, *toolkit.metadata_urlpatterns]


def fill() -> None:
    """The database, with a user and the clients that an administrator would have entered."""
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    User.objects.create_user(USER[0], password=USER[1])
    Application.objects.create(
        client_id=DESK,
        name="A desk application",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris="http://localhost/callback http://127.0.0.1/callback",
    )
    for client_id, secret in (CRON, RESOURCE_SERVER):
        Application.objects.create(
            client_id=client_id,
            client_secret=secret,
            client_type="confidential",
            authorization_grant_type="client-credentials",
        )


def serve(folder: Path, kind: str) -> None:
    """Print the issuer as the only line on stdout, then serve until the process is told to stop."""
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

    class Quiet(WSGIRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadedWSGIServer(("127.0.0.1", 0), Quiet)
    issuer = f"http://127.0.0.1:{server.server_port}/o"
    configure(folder, issuer, oidc=kind == "oidc")
    django.setup()
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    logging.getLogger("django.request").setLevel("ERROR")  # browsers ask for icons that there are none of
    fill()
    urlpatterns.extend(urls(oidc=kind == "oidc"))
    server.set_app(StaticFilesHandler(get_wsgi_application()))
    print(issuer, flush=True)
    server.serve_forever()


urlpatterns: list[Any] = []

if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, ("rfc8414" | "oidc") as kind]:
            serve(Path(folder), kind)
        case _:
            sys.exit("usage: protected_django.py FOLDER rfc8414|oidc")
