"""`headrace doctor`: what is wrong, or will be, in source, Kafka and Connect, sinks, and the machine."""
