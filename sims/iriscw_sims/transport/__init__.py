"""Level C: real asyncio code, such as gRPC sessions and their retries, on virtual time and a simulated TCP.

``docs/transport-simulation.md`` says what is simulated, how a test of it is written, and what it does not model.
"""
