"""One stream to the controller that a worker or an agent keeps, however often it breaks."""
