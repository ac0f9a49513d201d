"""What gunicorn serves. The views are imported with it, as the first request of a worker would do."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()

from shop import urls  # noqa: E402, F401
