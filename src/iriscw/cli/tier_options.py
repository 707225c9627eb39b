"""Options about the tiers of this machine: made from those that there are, of packages too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iriscw.checkpoint.drivers.built_in import DEFAULT_ROOM
from iriscw.checkpoint.drivers.loading import REPOSITORY_VARIABLE, default_tier, tier_names
from iriscw.cli.freeze_shown import refuse_options
from iriscw.cli.kinds import SizeType

if TYPE_CHECKING:
    from iriscw.checkpoint.drivers.repository.key_files import KeyFiles

BUDGETS = {name: f"{name.replace('-', '_')}_budget" for name in tier_names()}
"""The option, as click names it, that says how much room each tier has."""

KEY_OPTIONS = {
    "sign_with": "IRISCW_SIGN_WITH",
    "trust": "IRISCW_TRUST",
    "encrypt_with": "IRISCW_ENCRYPT_WITH",
    "decrypt_with": "IRISCW_DECRYPT_WITH",
}
"""Options that name files of keys for the repository, and the variables that do so where an option does not: names
of files, and never what is in them."""

UNPROTECTED_OPTION = "accept_unprotected"
UNPROTECTED_VARIABLE = "IRISCW_ACCEPT_UNPROTECTED"

PLACE_OPTIONS = ("state_dir", "repository", *KEY_OPTIONS, UNPROTECTED_OPTION, *BUDGETS.values())


def budgets_of(given: Mapping[str, int | None]) -> dict[str, int]:
    """Return what the options say of the room that tiers have, by tier."""
    return {name: given[option] or 0 for name, option in BUDGETS.items()}


def repository_of(given: Mapping[str, Any]) -> str:
    """Return the URL of the repository; empty: there is none. A variable that says it is no option that is refused."""
    return given["repository"] or os.environ.get(REPOSITORY_VARIABLE, "")


def keys_of(given: Mapping[str, Any]) -> KeyFiles:
    """Return where the keys for the repository are. A variable that says it is no option that is refused.

    Raises:
        click.UsageError: an option names one, and there is no repository.
    """
    if not repository_of(given):
        refuse_options(given, (*KEY_OPTIONS, UNPROTECTED_OPTION), "only with a --repository")
    from iriscw.checkpoint.drivers.repository.key_files import KeyFiles

    named = {option: given[option] or _paths(variable) for option, variable in KEY_OPTIONS.items()}
    return KeyFiles(
        sign_with=_one(named, "sign_with"),
        trust=tuple(named["trust"]),
        encrypt_with=_one(named, "encrypt_with"),
        decrypt_with=tuple(named["decrypt_with"]),
        unprotected_too=given[UNPROTECTED_OPTION] or os.environ.get(UNPROTECTED_VARIABLE, "") == "1",
    )


def _paths(variable: str) -> tuple[Path, ...]:
    return tuple(Path(each) for each in os.environ.get(variable, "").split(os.pathsep) if each)


def _one(named: Mapping[str, Any], option: str) -> Path | None:
    """Return the one file of an option that takes one only, wherever it was named."""
    found = named[option]
    if isinstance(found, tuple):
        if len(found) > 1:
            raise click.UsageError(f"{KEY_OPTIONS[option]} names {len(found)} files, and one is meant")
        return found[0] if found else None
    return Path(found)


def _key_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name files of keys."""
    function = click.option(
        "--accept-unprotected",
        is_flag=True,
        help="Fetch from the repository what nobody has signed or encrypted, too, for as long as there is some of it.  "
        "[default: $IRISCW_ACCEPT_UNPROTECTED]",
    )(function)
    file = click.Path(dir_okay=False, path_type=Path)
    function = click.option(
        "--decrypt-with",
        metavar="PATH",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Further keys (mode 0600), or a folder of such files, for what was encrypted with them; may be repeated.  "
        "[default: $IRISCW_DECRYPT_WITH]",
    )(function)
    function = click.option(
        "--encrypt-with",
        metavar="FILE",
        type=file,
        help="The key (32 bytes in base64, mode 0600) that encrypts what is stored in the repository. What is fetched "
        "must be encrypted, too.  [default: $IRISCW_ENCRYPT_WITH]",
    )(function)
    function = click.option(
        "--trust",
        metavar="PATH",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Public keys (PEM), or a folder of such files; may be repeated. What is fetched from the repository must "
        "be signed by one of them.  [default: $IRISCW_TRUST]",
    )(function)
    return click.option(
        "--sign-with",
        metavar="FILE",
        type=file,
        help="The Ed25519 private key (PEM, mode 0600) that signs what is stored in the repository.  "
        "[default: $IRISCW_SIGN_WITH]",
    )(function)


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where state lies and how much room there is."""
    for name in reversed(BUDGETS):
        default = f" Default: {DEFAULT_ROOM[name]}." if name in DEFAULT_ROOM else ""
        text = f'Room for the tier "{name}".{default}'
        function = click.option(f"--{name}-budget", type=SizeType(1), help=text)(function)
    function = _key_options(function)
    function = click.option(
        "--repository",
        metavar="URL",
        default="",
        help="The object store that keeps checkpoints beyond this machine.  [default: $IRISCW_REPOSITORY]",
    )(function)
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where operations and checkpoints lie. Default: $IRISCW_STATE_DIR, else $XDG_STATE_HOME/iriscw, "
        "else ~/.local/state/iriscw; those in memory: $IRISCW_RAM_DIR, else below /dev/shm.",
    )(function)


tier_option = click.option(
    "--tier", metavar="TIER", default="", help=f"Where to: {', '.join(tier_names())}.  [default: {default_tier()}]"
)

fetch_option = click.option(
    "--tier", metavar="TIER", default="", help="Where to fetch it first, if only the repository has it.  [default: any]"
)
