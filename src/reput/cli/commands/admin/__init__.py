"""`reput admin`: commands that ask brokers and name servers."""
