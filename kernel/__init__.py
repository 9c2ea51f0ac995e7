"""What every service stands on, and the only package that talks to Redis and to the object store."""
