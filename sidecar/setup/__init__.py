"""`headrace init`: a first configuration from a live database."""
