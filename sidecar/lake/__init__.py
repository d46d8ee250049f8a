"""Views and tables read from Spark, and tables filled by Spark jobs: what Spark and a state folder have to do with each other."""
