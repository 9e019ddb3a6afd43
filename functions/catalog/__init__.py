"""Instance types, offerings and prices are fetched and stored."""
