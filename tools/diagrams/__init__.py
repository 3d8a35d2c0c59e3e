"""The Mermaid diagrams of the site."""
