"""/health is for everybody and answers at once; /metrics wants the token and shows one controller's figures."""

import asyncio
import json

from controller_world import World


async def get(world: World, path: str, token: str = "") -> tuple[int, bytes]:
    """One HTTP/1.1 request."""
    address = world.controller.address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    line = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_health(world: World) -> None:
    """A probe without a token is told that all is well."""
    status, body = await get(world, "/health")
    assert (status, json.loads(body)) == (200, {"status": "ok", "reason": ""})


async def test_metrics(world: World) -> None:
    """A scraper with the token gets counters of jobs, runtime, journal and door."""
    await world.submit()
    assert (await get(world, "/metrics"))[0] == 401
    status, body = await get(world, "/metrics", world.controller.admin_token.reveal())
    text = body.decode()
    assert status == 200
    assert 'iriscw_job_changes_total{state="PENDING"} 1.0' in text
    for name in ("iriscw_runtime_live", "iriscw_journal_durable", "iriscw_rpc_connections", "iriscw_logs_stored_bytes"):
        assert f"\n{name} " in text
    assert "python_info" not in text, "the process's own registry is not ours to show"
