"""The web page: static files, bundled, and the routes that serve them."""
