"""`python -m snodo_client.auth login|logout|status URL`: sign in once, for programs of the same user that ask nobody.

It uses the tokens file of this user, as `OAuth()` does; exit codes are 0, 1 for a failure, and 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from time import localtime, strftime
from typing import TYPE_CHECKING

from ..outcome import McpError
from .oauth import OAuth

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m snodo_client.auth", description="Tokens for MCP servers.")
    parser.add_argument("action", choices=("login", "logout", "status"))
    parser.add_argument("url", metavar="URL", help="the URL of the MCP server")
    parser.add_argument("--console", action="store_true", help="open no browser: paste the address it ends at")
    parser.add_argument("--scope", default="", help="scopes to ask for beside those that the server wants")
    parser.add_argument("--client-id", help="the id of this program, where it is registered at the server's issuer")
    parser.add_argument("--client-metadata-url", metavar="URL", help="the document that describes this program")
    parser.add_argument("--issuer", help="the only authorization server that may be used")
    parser.add_argument(
        "--redirect-uri", metavar="URI", help="where the browser comes back to: http://localhost:PORT/path"
    )
    parser.add_argument("--insecure-http", action="store_true", help="allow http to other machines")
    given = parser.parse_args(arguments)
    try:
        oauth = OAuth(
            sign_in="console" if given.console else "browser",
            client_id=given.client_id,
            client_metadata_url=given.client_metadata_url,
            issuer=given.issuer,
            redirect_uri=given.redirect_uri,
            insecure_http=given.insecure_http,
        )
        return _done(oauth, given)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 1


def _done(oauth: OAuth, given: argparse.Namespace) -> int:
    if given.action == "login":
        outcome = oauth.login(given.url, scope=given.scope)
        if outcome.ok:
            print(f"signed in to {outcome.value['url']}")
    elif given.action == "logout":
        outcome = oauth.forget(given.url)
        if outcome.ok:
            print(f"signed out of {given.url.partition('?')[0]}")
    else:
        known = oauth.status(given.url)
        if known is None:
            print("not signed in")
            return 1
        if not isinstance(known, McpError):
            end = "no known end" if known["expires_at"] is None else strftime("%F %T", localtime(known["expires_at"]))
            renewed = ", renewed by itself" if known["refreshes"] else ""
            print(f"signed in by {known['issuer']}; scope: {' '.join(known['scope']) or 'none'}; until {end}{renewed}")
            return 0
        outcome = known
    if isinstance(outcome, McpError):
        print(outcome.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
