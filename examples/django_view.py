"""A Django view that calls a tool: one module-level `ConnectSpec`, whatever server runs the project.

Under gunicorn, uWSGI or mod_wsgi each worker process connects with its first call and keeps the connection, with
`--preload` too: a spec is only told how to connect, so there is nothing that a fork could break.

Run it with `python examples/django_view.py` (it needs `pip install django`), or under gunicorn, from this folder, with
`gunicorn django_view:application`, and then open http://127.0.0.1:8000/add/19/23.
"""

import sys

from snodo_client import ConnectSpec, InputRequired, McpError, Ok

try:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, JsonResponse
    from django.urls import path
except ImportError:
    print("this example needs Django: pip install django")
    sys.exit(0)

TOOLS = ConnectSpec(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"]), restart="on_call", timeout=10)


def add(request: HttpRequest, a: int, b: int) -> JsonResponse:
    match TOOLS.client().call_tool("add", {"a": a, "b": b}, timeout=5):
        case Ok(result):
            return JsonResponse({"sum": result["structuredContent"]})
        case InputRequired(result):
            return JsonResponse({"asks": result["inputRequests"]}, status=409)
        case McpError(reason="timeout"):
            return JsonResponse({"error": "the tool server is slow"}, status=504)
        case McpError(message=text):
            return JsonResponse({"error": text}, status=502)


# -- the rest is what a project has in settings.py, urls.py and wsgi.py

urlpatterns = [path("add/<int:a>/<int:b>", add)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="for this example only", USE_TZ=True)
django.setup()
application = get_wsgi_application()


def main() -> None:
    from django.test import Client as Browser

    response = Browser().get("/add/19/23")
    print(response.status_code, response.json())


if __name__ == "__main__":
    main()
