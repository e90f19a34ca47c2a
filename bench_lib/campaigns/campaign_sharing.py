"""A campaign whose results belong elsewhere: many machines can measure its rounds at once.

Of a campaign in a folder of this machine nothing here does anything. While it is measured, a place
that cannot be reached is said once a round and asked again in the next: the files wait here.
"""

import contextlib
from collections.abc import Callable

from bench_lib.campaigns.plan import FILE, Plan, settle
from bench_lib.errors import Unreachable
from bench_lib.places.mirror import Mirror
from bench_lib.places.place import Place


class Sharing:
    """Keeps a campaign's folder here and its place elsewhere alike."""

    def __init__(self, plan: Plan, say: Callable[[str], object]) -> None:
        """Raises UsageError when the place cannot be opened."""
        self._plan = plan
        self._say = say
        self._mirror = Mirror(Place.open(plan.address), plan.campaign) if plan.url else None
        self._created = False  # whether the plan elsewhere is of this process
        self._reached = True

    def settle(self) -> int:
        """As plan.settle, with the plan that all machines share: the first one's, or an equal one.

        Raises Unreachable: a campaign begins where its results can be put.
        """
        mirror = self._mirror
        if mirror is None:
            return settle(self._plan)
        mirror.fetch()
        path, there = mirror.folder.path / FILE, mirror.fetch_plan(FILE)
        before = path.read_bytes() if there else b""
        seed = settle(self._plan, begun=there)
        if there and path.read_bytes() != before:
            mirror.put_plan(FILE)
        elif not there:
            self._created = mirror.create_plan(FILE)
            if not self._created and mirror.fetch_plan(FILE):  # another machine was first, just now
                seed = settle(self._plan, begun=True)
        return seed

    def refresh(self) -> None:
        """Before a round: put what waits, and fetch what others have finished."""
        self._reached = True
        self.put()
        if self._mirror is not None and self._reached:
            self._attempt(self._mirror.fetch)

    def put(self) -> None:
        """Put what is new."""
        if self._mirror is not None and self._reached:
            self._attempt(self._mirror.push)

    def end(self) -> bool:
        """At the end: put what waits; whether all is where it belongs, else says what to do."""
        mirror = self._mirror
        if mirror is None:
            return True
        try:
            mirror.push()
            if self._created and not mirror.folder.exists():  # a plan by which nothing was measured
                mirror.remove_plan(FILE)
        except Unreachable as error:
            self._say(mirror.not_put(error))
        except KeyboardInterrupt:
            self._say(mirror.not_put(Unreachable("interrupted")))
        return not mirror.pending()

    @property
    def where(self) -> str:
        """Where the campaign is, for a sentence."""
        elsewhere = self._plan.url and not (self._mirror and self._mirror.pending())
        return f"{self._plan.url}/{self._plan.campaign}" if elsewhere else str(self._plan.folder.path)

    def _attempt(self, exchange: Callable[[], object]) -> None:
        try:
            exchange()
        except Unreachable as error:
            self._reached = False
            with contextlib.suppress(OSError):
                self._say(f"{error}; measuring goes on, and it is asked again before the next round")
