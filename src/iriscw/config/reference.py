"""The configuration's reference page, made from the model.

``python -m iriscw.config.reference`` writes it to standard output; ``docs/configuration.md`` is that text, and a test
keeps it so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from iriscw.config.defaults import CONTROLLER_OF, PLUGIN_SLICE_DEFAULTS, POOL_DEFAULTS, cluster_defaults, group_defaults
from iriscw.config.errors import ProblemKind
from iriscw.config.kinds import Section, Sections
from iriscw.config.load import FILE_LIMIT_BYTES
from iriscw.config.model import ClusterConfig, PlatformKind
from iriscw.config.read import GROUP_NAME_LIMIT, GROUPS_LIMIT
from iriscw.config.schema import Key, keys, members

EXAMPLE: Final = """\
name: research
platform:
  coreweave:
    region: LGA1
    namespace: iris
    object_storage_endpoint: http://cwlota.com   # where s3:// is, for every pod
controller:
  coreweave:
    port: 10000
    service_name: iris-controller-svc
  bundle_prefix: s3://research-iris/bundles
defaults:
  bootstrap:
    docker_image: registry.example/iris-worker:1
  timeouts:
    boot_timeout: 60m
  autoscaler:
    scale_up_delay: 1m
    scale_down_delay: { milliseconds: 300000 }   # or 5m
  task_env:
    HF_HOME: /var/cache/iris/hf
  task_secrets:
    WANDB_API_KEY: wandb/api-key   # the key `api-key` of the Secret `wandb`
scale_groups:
  h100_8x:
    accelerator_type: gpu
    accelerator_variant: H100
    num_vms: 1
    resources: { cpu: 128, ram: 2048GB, disk: 3TB, gpu_count: 8 }
    min_slices: 0
    max_slices: 10
    priority: 10
    slice_template:
      preemptible: false
      coreweave:
        instance_type: gd-8xh100ib-i128
        infiniband: true
    autoscaler:
      scale_down_delay: 20m   # for this group only: these nodes take long to boot
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    max_slices: 2
    slice_template:
      coreweave:
        instance_type: cd-gp-a192-genoa
"""

_INTRODUCTION: Final = """\
# Configuration

<!-- Made by `python -m iriscw.config.reference`. Change the model, not this page. -->

One file, `cluster.yaml`, describes a cluster: where its machines come from, its controller, and the groups of machines
it may scale. Its shape is defined by `protos/iriscw/v1/config.proto`. `iriscw.load_config(path)` reads it, and refuses
it with every mistake at once, each with its line, its key and what would be right. `iriscw config check FILE` does the
same and starts nothing: it prints the whole configuration with every default, or the mistakes.

```yaml
{example}```

Two platforms are built in, `coreweave` and `local`; `plugin` is one of an installed package
([Writing a driver](drivers.md)), and `Cluster.open(config, drivers=...)` takes drivers of one's own. On one machine
this is enough:

```yaml
platform: {{ local: {{}} }}
scale_groups:
  small: {{ max_slices: 4 }}
```

## Values

| type | written |
| --- | --- |
| size | bytes as a number, or text with a unit: `16GiB` is 16 x 2^30, `2048GB` is 2048 x 10^9 |
| duration | text with units, `30m`, `1h30m`, `0.5s`, or `{{ milliseconds: 1800000 }}` |
| CPU cores | a number, `128` or `0.5`, or thousandths, `500m` |
| text | one line; quote what YAML would take for a number |

The file is YAML 1.2 without aliases, tags or second documents, of at most {file_limit} bytes, with at most {groups}
groups. A group's name has at most {name} of `a-z`, `0-9`, `_` and `-`.

## Who wins

`timeouts` and `autoscaler` may stand in `defaults`, in `platform` and in each group, key by key: a group's own value
wins over the platform's, that over the one in `defaults`, that over the built-in one. A slice template inherits from
its group.

`gcp` and `manual` are names of Iris that iriscw does not run: they are refused as *{unsupported}*.

## What is known of a type of node

CoreWeave's public instance types are known: how many GPUs of which class, CPU, memory, whether they have InfiniBand. A
group that promises more than its nodes have is refused. A type that is not known is a warning, and so is a GPU that
is paid for and not used: `iriscw config check` prints warnings, a controller logs them.
"""


def reference() -> str:
    """Return the page as Markdown."""
    introduction = _INTRODUCTION.format(
        example=EXAMPLE,
        file_limit=FILE_LIMIT_BYTES,
        groups=GROUPS_LIMIT,
        name=GROUP_NAME_LIMIT,
        unsupported=ProblemKind.NOT_SUPPORTED.value,
    )
    trees = {kind: _defaults(kind) for kind in PlatformKind}
    lines = [introduction, "## Keys", ""]
    for model, path, within in _sections(ClusterConfig, (), ()):
        lines.extend(_table(model, path, within, trees))
    return "\n".join(lines)


def _defaults(kind: PlatformKind) -> dict[str, Any]:
    """Return all defaults as one tree, with one nameless group."""
    group = group_defaults(kind)
    group["slice_template"] |= {"coreweave": POOL_DEFAULTS, "plugin": PLUGIN_SLICE_DEFAULTS}
    return {**cluster_defaults(kind, CONTROLLER_OF[kind]), "scale_groups": {"<name>": group}}


def _sections(
    model: type, path: tuple[str, ...], within: tuple[str, ...]
) -> Iterator[tuple[type, tuple[str, ...], tuple[str, ...]]]:
    """Yield each section once: its class, its path in the file, and its path in the tree of defaults."""
    yield model, path, within
    for known in keys(model).values():
        if known.otherwise:
            continue  # a section that repeats another one
        here, there = (*path, known.written), (*within, known.name)
        if isinstance(known.kind, Section):
            yield from _sections(known.kind.model, here, there)
        elif isinstance(known.kind, Sections):
            yield from _sections(known.kind.model, (*here, "<name>"), (*there, "<name>"))


def _table(
    model: type, path: tuple[str, ...], within: tuple[str, ...], trees: Mapping[PlatformKind, Any]
) -> Iterator[str]:
    if path:
        yield f"### `{'.'.join(path)}`\n"
    yield f"{model.__doc__}\n"
    if keys(model):
        yield "| key | type | default | meaning |\n| --- | --- | --- | --- |"
        for known in keys(model).values():
            row = (f"`{known.written}`", known.kind.label, _default(known, model, within, trees), known.doc)
            yield f"| {' | '.join(row)} |"
        yield ""


def _default(known: Key, model: type, within: tuple[str, ...], trees: Mapping[PlatformKind, Any]) -> str:
    if known.otherwise:
        return known.otherwise
    if isinstance(known.kind, Sections):
        return "none"
    if isinstance(known.kind, Section):
        return f"one of {', '.join(f'`{member.written}`' for member in members(model))}" if known.kind.oneof else ""
    said = {kind: _written(known, within, tree) for kind, tree in trees.items()}
    alike: dict[str, list[str]] = {}
    for kind, text in said.items():
        alike.setdefault(text, []).append(kind.value)
    missing = alike.pop("", [])
    values = [f"{text} ({', '.join(kinds)})" for text, kinds in alike.items()]
    if not values:
        return "must be said"
    # A section of one platform has a default for that one only.
    complete = not missing or any(kind.value in within for kind in PlatformKind)
    if complete and len(alike) == 1:
        return next(iter(alike))
    return ", ".join(values if complete else [*values, "elsewhere it must be said"])


def _written(known: Key, within: tuple[str, ...], tree: Any) -> str:
    """Return a default as it would be written; empty if there is none."""
    for name in (*within, known.name):
        if not isinstance(tree, dict) or name not in tree:
            return ""
        tree = tree[name]
    assert not isinstance(known.kind, Section | Sections)
    plain = known.kind.write(tree)
    if isinstance(plain, bool):
        return f"`{str(plain).lower()}`"
    return "empty" if plain in ("", {}) else f"`{plain}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
