"""Would the tests notice? A random sample of small changes of the code, each against the tests that cover its line."""
