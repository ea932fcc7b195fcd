"""Bodies of messages and the values of the application: what `serializer=` takes."""
