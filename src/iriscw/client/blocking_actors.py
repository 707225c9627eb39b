"""Handles of hosted actors for scripts without an event loop: the same names, without ``await``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import attrs

from iriscw.client.actors import PATIENCE_S, ActorFuture, ActorGroup, ActorHandle, ActorMethod, KeyedMethod

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")


def waited(future: ActorFuture[R]) -> R:
    """Wait for a call; whoever is interrupted (Ctrl-C) takes it back."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@attrs.frozen
class BlockingActorMethod(Generic[P, R_co]):
    """:class:`iriscw.ActorMethod` for scripts: ``handle.method(x)``."""

    _method: ActorMethod[P, R_co]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it, and wait for its value; errors as :class:`iriscw.ActorHandle` says."""
        return waited(self._method.remote(*args, **kwargs))

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it, and go on: ``result()`` of the future has its value."""
        return self._method.remote(*args, **kwargs)

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it, and return when the call waits in the actor's mailbox; errors as :meth:`iriscw.ActorMethod.tell`."""
        waited(self._method.tell(*args, **kwargs))

    def with_key(self, key: str, *, patience_s: float = PATIENCE_S) -> BlockingKeyedMethod[P, R_co]:
        """Return the method with a key, by which a lost call is sent again: :meth:`iriscw.ActorMethod.with_key`."""
        return BlockingKeyedMethod(self._method.with_key(key, patience_s=patience_s))

    @overload
    def stream(
        self: BlockingActorMethod[P, AsyncIterator[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Generator[V, None, None]: ...

    @overload
    def stream(
        self: BlockingActorMethod[P, Iterator[V]], *args: P.args, **kwargs: P.kwargs
    ) -> Generator[V, None, None]: ...

    def stream(self, *args: Any, **kwargs: Any) -> Generator[Any, None, None]:
        """Iterate over what the method yields, as :meth:`iriscw.ActorMethod.stream`: ``for item in ...``."""
        return self._method._handle._iterated(self._method.name, args, kwargs)


@attrs.frozen
class BlockingKeyedMethod(Generic[P, R_co]):
    """:class:`iriscw.KeyedMethod` for scripts: ``handle.add.with_key("order 7")(5)``."""

    _method: KeyedMethod[P, R_co]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it, and wait for its value; errors as :meth:`iriscw.ActorMethod.with_key` says."""
        return waited(self._method.remote(*args, **kwargs))

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it, and go on: ``result()`` of the future has its value."""
        return self._method.remote(*args, **kwargs)


class BlockingActorHandle(Generic[T]):
    """:class:`iriscw.ActorHandle` for scripts. An actor that is sent one gets an :class:`iriscw.ActorHandle`."""

    def __init__(self, handle: ActorHandle[T]) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle).replace("iriscw.", "iriscw.blocking.", 1)

    def __eq__(self, other: object) -> bool:
        return self._handle == other._handle if isinstance(other, BlockingActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> Any:
        return self._handle.__reduce__()

    def __dir__(self) -> list[str]:
        return dir(self._handle)

    def __getattr__(self, name: str) -> BlockingActorMethod[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return BlockingActorMethod(getattr(self._handle, name))

    @property
    def name(self) -> str:
        """That of its job."""
        return self._handle.name

    @property
    def job_id(self) -> str:
        """The job that hosts it."""
        return self._handle.job_id

    @overload
    def method(self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]) -> BlockingActorMethod[P, R]: ...

    @overload
    def method(self, method: Callable[Concatenate[T, P], R]) -> BlockingActorMethod[P, R]: ...

    def method(self, method: Callable[..., Any]) -> BlockingActorMethod[..., Any]:
        """Return a method with its types; errors as :meth:`iriscw.ActorHandle.method`."""
        found: ActorMethod[..., Any] = self._handle.method(method)
        return BlockingActorMethod(found)

    def wait_ready(self) -> None:
        """Wait until it takes calls; errors as :meth:`iriscw.ActorHandle.wait_ready`."""
        waited(self._handle._ready())


class BlockingActorGroup(Generic[T]):
    """:class:`iriscw.ActorGroup` for scripts."""

    def __init__(self, group: ActorGroup[T]) -> None:
        self._group = group
        self.handles = tuple(BlockingActorHandle(each) for each in group)

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[BlockingActorHandle[T]]:
        return iter(self.handles)

    def __getitem__(self, index: int) -> BlockingActorHandle[T]:
        return self.handles[index]

    def wait_ready(self) -> list[BlockingActorHandle[T]]:
        """Wait until all of them take calls; errors as :meth:`iriscw.ActorGroup.wait_ready`."""
        waited(self._group._ready())
        return [*self.handles]

    def terminate(self, reason: str = "") -> None:
        """Have the jobs of all of them ended; arguments and errors as :meth:`iriscw.ActorGroup.terminate`."""
        waited(self._group._termination(reason))
