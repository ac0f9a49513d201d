"""The settings of a Django project that needs few."""

SECRET_KEY = "not secret: this project runs in tests only"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
USE_TZ = True
