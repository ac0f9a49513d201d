"""Where the view is."""

from django.urls import path
from shop import views

urlpatterns = [path("<str:way>/<str:kind>", views.echo)]
