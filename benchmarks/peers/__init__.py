"""Other agent libraries, each behind a stub of its own model class. One module per library, none of them required."""
