"""The agent's stream to the controller: what it tells, and what it is ordered to do."""
