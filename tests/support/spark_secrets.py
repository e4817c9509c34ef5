"""Settings of the session of the Spark tests that nobody but their user may read."""

SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": "key-of-a-bucket",
    "spark.reput.tests.password": 'a b\\c="d":#! \u00fc\u20ac\U0001f511,\te',
    "spark.authenticate.secret": "between-the-nodes",
}
