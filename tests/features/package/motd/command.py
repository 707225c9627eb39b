"""``iriscw motd [TEXT]``."""

import click

from iriscw.cli.connection import connection_options, with_client
from iriscw.cli.output import emit
from motd import Text


@click.command()
@click.argument("text", required=False)
@connection_options
def motd(text, address, token_file):
    """Show the message of the day, or set another one."""
    route = "/motd.Motd/Get" if text is None else "/motd.Motd/Set"
    answer = with_client(address, token_file, lambda client: client.call(route, Text(text=text or ""), Text))
    emit(answer.text + "\n")
