"""The main job: the flights that left New York in 2013, through the store, through Spark, into a report."""
