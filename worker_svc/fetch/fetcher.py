"""The fetcher: one attempt to bring one resource into the object store.

A fetch in order: the task is read and checked (`order`); the host's gate is asked, a place at the host is taken and its
circuit breaker asked (`hostgate`, `limits`, `circuit`); the request goes out, its socket opened by the guard (`client`,
`guard`), directly or by the first proxy that serves (`proxies`); redirects are followed hop by hop, each through the
same checks; the body is read, digested, inspected and handed on to the store as it comes (`download`, `transfer`,
`sink`), and becomes visible when all is right.
Retries are the lane's: what fails here says by its code whether another attempt may help.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Mapping
from typing import Final

from aiohttp.abc import AbstractResolver

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.breakers import Admission, Breakers
from kernel.breakers.hostgate import HostGates
from kernel.clock import Clock
from kernel.config.secret_values import with_proxy_secrets
from kernel.durations import seconds
from kernel.foreign_text import fit
from kernel.heap import give_back_large_blocks
from kernel.hostname import UrlError
from kernel.telemetry import metrics
from worker_svc.fetch.answer import REDIRECTS, check_success, field, fields, opts_out
from worker_svc.fetch.circuit import ANY_TURN, HostCircuits, Turn
from worker_svc.fetch.client import FetchClient
from worker_svc.fetch.doubt import DOUBTED, Tries, doubt
from worker_svc.fetch.download import Download, Hop, Workshop
from worker_svc.fetch.failure import FetchFailure, deferral, failure
from worker_svc.fetch.fetched import Fetched
from worker_svc.fetch.guard import AddressPolicy
from worker_svc.fetch.header_secrets import HeaderSecrets
from worker_svc.fetch.headers import RequestHeaders
from worker_svc.fetch.limits import ByteBudget
from worker_svc.fetch.order import FetchOrder, order_of, unfit_url
from worker_svc.fetch.pace import Floor
from worker_svc.fetch.places import HostBusyError, HostSlots
from worker_svc.fetch.policy import FetchPolicy
from worker_svc.fetch.proxies import Proxies, Proxy, ProxyFault
from worker_svc.fetch.retry_after import retry_after
from worker_svc.fetch.sink import Objects
from worker_svc.fetch.url import Url, resolve
from worker_svc.fetch.wire import WireResponse

HOST_PATIENCE: Final = 5.0
"""Seconds that a fetch waits at most for a place at a busy host; then it leaves its slot and comes back later."""
_GATED: Final = frozenset({429, 503})


class Fetcher:
    """Fetches for one worker process. `start` before the first fetch, `close` at the end."""

    def __init__(
        self,
        config: Config,
        objects: Objects,
        gates: HostGates,
        clock: Clock,
        *,
        breakers: Breakers | None = None,
        secrets: Mapping[str, str] | None = None,
        resolver: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        rng: random.Random | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        """`secrets` are the values of those that headers and proxies may name; see `kernel.config.secret_values`.

        Without `breakers` a host is asked however often it fails.
        """
        settings = config.fetcher
        self._settings = settings
        self._gates = gates
        self._circuits = HostCircuits(breakers, seconds(settings.host_give_up))
        self._clock = clock
        self._secrets = HeaderSecrets(config, secrets or {})
        self._slots = HostSlots(settings.per_host)
        pools = with_proxy_secrets(config.proxies, secrets or {})
        self._proxies = Proxies(pools, clock, rng or random.Random())  # noqa: S311 - spreads load, no secret
        self._client = FetchClient(
            settings, AddressPolicy(settings.allow_networks), resolver=resolver, ssl_context=ssl_context
        )
        self._workshop = Workshop(
            objects,
            budget or ByteBudget(),
            clock,
            config.object_store.multipart_threshold,
            Floor(settings.low_speed_bytes, seconds(settings.low_speed_window), seconds(settings.timeout)),
        )

    async def start(self) -> None:
        """Makes the connection pools; connects to nothing."""
        give_back_large_blocks()
        await self._client.start()

    async def close(self) -> None:
        """Closes every connection; safe twice."""
        await self._client.close()

    async def fetch(self, task: DownloadTask, policy: FetchPolicy, turn: Turn = ANY_TURN) -> Fetched:
        """Makes one attempt. FetchFailure when it fails, or (`counts` False) when the host is not to be asked now."""
        order = order_of(task, policy, self._secrets, self._settings.user_agent, turn)
        tries = Tries(self._proxies, policy.proxy_pools) if policy.proxy_pools else None
        try:
            async with asyncio.timeout(policy.timeout) as deadline:
                return await (self._follow(order, None) if tries is None else self._by_proxies(order, tries))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            late = failure(codes.FAILURE_CODE_DOWNLOAD_DEADLINE, f"the attempt took longer than {policy.timeout:g} s")
            raise (tries.named(late) if tries else late) from error

    async def _by_proxies(self, order: FetchOrder, tries: Tries) -> Fetched:
        """By one proxy after the other; a proxy's fault is never the origin's."""
        for proxy in tries:
            try:
                fetched = await self._follow(order, proxy)
            except ProxyFault as fault:
                tries.at_fault(proxy, fault)
            except FetchFailure as error:
                tries.failed(proxy, error)
            else:
                tries.served(proxy)
                return fetched
        raise tries.failure()

    async def _follow(self, order: FetchOrder, proxy: Proxy | None) -> Fetched:
        """Follows redirects to the content and stores it."""
        url, headers = order.url, order.headers
        passed: tuple[str, ...] = ()
        while True:
            try:
                found = await self._in_turn(order, url, headers, proxy, passed)
            except FetchFailure as error:
                if passed:  # it is not the URL of the task that failed
                    error.facts.setdefault("final_url", fit(url.redacted))
                raise
            if isinstance(found, Fetched):
                return found
            passed = (*passed, url.redacted)
            headers = headers.after_redirect(url, found)
            url = found

    async def _in_turn(
        self, order: FetchOrder, url: Url, headers: RequestHeaders, proxy: Proxy | None, passed: tuple[str, ...]
    ) -> Fetched | Url:
        """Asks for one URL when its host may be asked, and tells the host's breaker how that went."""
        admission = await self._take_turn(url, order.turn)
        try:
            found = await self._hop(order, url, headers, proxy, passed)
        except BaseException as error:
            if proxy is not None:
                doubt(error, tunnel=url.scheme == "https")
            self._circuits.leave(url.site, order.turn, admission, error)
            raise
        else:
            self._circuits.leave(url.site, order.turn, admission, None)
            return found
        finally:
            self._slots.free(url.site)

    async def _hop(
        self, order: FetchOrder, url: Url, headers: RequestHeaders, proxy: Proxy | None, passed: tuple[str, ...]
    ) -> Fetched | Url:
        """Asks for one URL: the stored content, or where else it is."""

        async def ask(*more: tuple[str, str]) -> WireResponse:
            return await self._client.get(url, headers.wire(*more), proxy)

        async def accept(answer: WireResponse) -> None:
            await self._accept(order, url, answer, proxy)

        answer = await ask()
        try:
            if answer.status in REDIRECTS:
                return self._target(url, answer, passed)
            await accept(answer)
            download = Download(order, Hop(url, proxy, passed, ask, accept), self._workshop)
            try:
                return await download.store(answer)
            finally:
                metrics.BYTES_FETCHED.inc(download.wire_length)
        except FetchFailure as error:
            if proxy is not None:
                doubt(error, answer, tunnel=url.scheme == "https")
            error.facts.setdefault("http_status", answer.status)
            error.facts.setdefault("final_url", fit(url.redacted))
            raise
        finally:
            answer.close()

    def _target(self, url: Url, answer: WireResponse, passed: tuple[str, ...]) -> Url:
        """Where a redirect leads, if that is a place that may be asked and there were not too many before."""
        try:
            target = resolve(url, next(iter(fields(answer, "location")), b""))
        except UrlError as error:
            raise unfit_url(error, codes.FAILURE_CODE_DOWNLOAD_BAD_REDIRECT) from error
        if len(passed) >= self._settings.max_redirects:
            text = f"more than {self._settings.max_redirects} redirects, the last to {target.redacted}"
            raise failure(codes.FAILURE_CODE_DOWNLOAD_TOO_MANY_REDIRECTS, text)
        return target

    async def _accept(self, order: FetchOrder, url: Url, answer: WireResponse, proxy: Proxy | None) -> None:
        """Returns for a head whose body is to be stored. A `Retry-After` closes the host's gate for the whole fleet."""
        try:
            check_success(answer, order.headers.value("range"))
        except FetchFailure as error:
            if proxy is not None:
                doubt(error, answer, tunnel=url.scheme == "https")
            await self._note_retry_after(url, answer, error)
            raise
        if order.policy.honour_robots_tag and opts_out(answer):
            text = "the server asks by X-Robots-Tag that this not be archived"
            raise failure(codes.FAILURE_CODE_DOWNLOAD_OPTED_OUT, text)

    async def _note_retry_after(self, url: Url, answer: WireResponse, error: FetchFailure) -> None:
        asked = retry_after(field(answer, "retry-after"), self._clock.now_ms() / 1000, field(answer, "date"))
        if asked is None or answer.status < 400:
            return
        error.facts["retry_after_asked"] = asked
        error.retry_after = min(asked, seconds(self._settings.max_retry_after))
        if answer.status in _GATED and error.facts.get("fault") != DOUBTED:
            await self._gates.close(url.site, error.retry_after)

    async def _take_turn(self, url: Url, turn: Turn) -> Admission:
        """Takes a place at the host while it may be asked; otherwise a deferral, and the slot is somebody else's."""
        site = url.site
        await self._circuits.check(site, turn)
        await self._check_gate(site)
        try:
            waited = await self._slots.take(site, HOST_PATIENCE)
        except HostBusyError as error:
            text = f"{self._settings.per_host} fetches from {site} are running already"
            raise deferral(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN, text, error.retry_after) from error
        try:
            if waited:
                await self._check_gate(site)
            return await self._circuits.enter(site, turn)
        except BaseException:
            self._slots.free(site)
            raise

    async def _check_gate(self, site: str) -> None:
        remaining = await self._gates.until(site)
        if remaining > 0:
            text = f"{site} asked to be left alone for another {remaining:.1f} s"
            raise deferral(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN, text, remaining)
