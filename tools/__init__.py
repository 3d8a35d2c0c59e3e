"""Scripts that make pictures, and what assistants should know, of the README and the site. Not part of the package."""
