"""Scripts that make the pictures of the README and the site. Not part of the package."""
