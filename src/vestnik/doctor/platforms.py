"""Checks of the accounts that posts go out with: who they are, what they may do in each channel, where their updates go."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from vestnik.adapters.contract import Channel, Examinable, Identity, SendError
from vestnik.doctor.findings import Check, Finding, Looked, Patient, counted, fail, ok, refused, skipped, warn
from vestnik.errors import NotFound, VestnikError

PAUSE = 0.1  # seconds between two questions with one credential: most of its rate stays for posts
SKEW, WILD_SKEW = 5.0, 60.0  # seconds; a Date header has whole ones
PATIENCE = 10.0  # seconds for one answer
LATELY = 3600.0  # seconds that an error of a webhook is news
MANY_PENDING = 100
Question = Callable[[Examinable, Channel], Awaitable[Finding]]


async def credentials(patient: Patient) -> Looked:
    """``getMe`` and its like. The platform's clock comes with the answer."""
    accounts = await _accounts(patient)
    clocks: dict[str, float] = {}

    async def ask(adapter: Examinable, account: Channel) -> Finding:
        me = await adapter.who_am_i(account)
        if me.clock is not None:
            clocks[account.platform] = me.clock - time.time()
        return ok(_said_of(me), **_named(account))

    found = await _asked(patient, accounts, ask, blame=True)
    return [*found, *map(_clock, *zip(*clocks.items(), strict=True))] if clocks else found


async def rights(patient: Patient) -> Looked:
    rows = await patient.rows(_CHANNELS, patient.workspace_id, patient.most_channels)
    found = await _asked(patient, [_channel(row) for row in rows], _may_post)
    left = sum(row["of"] - patient.most_channels for row in rows if row["nth"] == patient.most_channels)
    if left > 0:
        found.append(skipped(f"{counted(left, 'more channel')} not asked about; see --channels"))
    return found


async def webhooks(patient: Patient) -> Looked:
    return await _asked(patient, await _accounts(patient), _hooked)


async def _may_post(adapter: Examinable, channel: Channel) -> Finding:
    rights = await adapter.rights(channel)
    if rights.may_post:
        return ok(f"may post, as {rights.role}", **_named(channel))
    resume = f"vestnik resume {channel.workspace_id} {channel.channel_id}"
    fix = (
        f"make the bot an administrator of {channel.target_id} that may post; if the channel is paused by now: {resume}"
    )
    return fail(f"may not post there, as {rights.role}: {rights.lacks}", fix, **_named(channel))


async def _hooked(adapter: Examinable, account: Channel) -> Finding:
    hooks = await adapter.webhooks(account)
    named = _named(account)
    if not hooks:
        return ok("no webhook is registered; none is needed to publish", **named)
    for hook in hooks:
        if hook.error and (hook.error_at is None or time.time() - hook.error_at < LATELY):
            at = "" if hook.error_at is None else f" at {datetime.fromtimestamp(hook.error_at, UTC):%H:%M:%S}"
            fix = "see that the address answers, with a certificate that the platform trusts; or take the webhook away"
            return fail(f"the platform could not deliver to {_host(hook.url)}{at}: {hook.error}", fix, **named)
        if (hook.pending or 0) > MANY_PENDING:
            said = f"{hook.pending} updates wait to be delivered to {_host(hook.url)}"
            return warn(said, "see that the address answers, and quickly", **named)
    return ok(f"updates go to {', '.join(_host(hook.url) for hook in hooks)}", **named)


async def _asked(
    patient: Patient, channels: Iterable[Channel], question: Question, *, blame: bool = False
) -> list[Finding]:
    """One after the other with each credential, and all credentials at once. ``blame``: whose token is refused is said here,
    and nowhere else."""
    queues: dict[tuple[str, str, str], list[Channel]] = defaultdict(list)
    for channel in channels:
        queues[channel.workspace_id, channel.platform, channel.auth_ref].append(channel)
    found = await asyncio.gather(*(_in_turn(patient, queue, question) for queue in queues.values()))
    told = [finding for each in found for finding in each]
    if not blame:
        told = [_elsewhere(each) if each.fix and each.fix.startswith(_NEW_TOKEN) else each for each in told]
    return told or [ok("there is no channel yet")]


async def _in_turn(patient: Patient, channels: list[Channel], question: Question) -> list[Finding]:
    adapter = patient.adapters.get(channels[0].platform)
    if adapter is None:
        fix = "install the package that brings it, or take its channels away"
        return [fail(f"no adapter for {channels[0].platform!r} is installed", fix, **_named(channels[0]))]
    if not isinstance(adapter, Examinable):
        return [skipped(f"the adapter for {channels[0].platform} tells nothing of accounts", **_named(channels[0]))]
    return [finding async for finding in _answers(adapter, channels, question)]


async def _answers(adapter: Examinable, channels: list[Channel], question: Question) -> AsyncIterator[Finding]:
    for number, channel in enumerate(channels):
        if number:
            await asyncio.sleep(PAUSE)
        finding, end = await _answer(adapter, channel, question)
        yield finding
        if end:  # of the others the same would be said
            return


async def _answer(adapter: Examinable, channel: Channel, question: Question) -> tuple[Finding, bool]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await question(adapter, channel), False
    except TimeoutError:
        fix = "see whether this machine reaches the platform (proxy, firewall, DNS)"
        return fail(f"no answer within {PATIENCE:g} s", fix, **_named(channel)), True
    except SendError as e:
        return _refusal(e, channel)
    except NotFound as e:
        return refused(
            e, "put the token under credentials: in the declaration, and vestnik apply it", **_named(channel)
        ), True
    except VestnikError as e:
        return refused(e, "see the message", **_named(channel)), True


_NEW_TOKEN = "get a valid token from the platform"
_UNAUTHORIZED = ("401", "unauthorized", "verify.token")


def _refusal(error: SendError, channel: Channel) -> tuple[Finding, bool]:
    named, ref = _named(channel), channel.auth_ref
    if error.code == "429":
        return skipped(f"the platform asks to wait: {error.message}", **named), True
    if error.code in _UNAUTHORIZED or error.raw.get("status") == 401:
        fix = f"{_NEW_TOKEN}, put it in the declaration as {ref}, and vestnik apply it"
        return fail(f"the platform does not take the token: {error.message}", fix, **named), True
    if error.code in ("bad_token", "credential_unreadable"):
        fix = error.hint or "store the token anew: vestnik apply FILE; is VESTNIK_SECRET_KEY the key that was in use?"
        return fail(error.message, fix, **named), True
    if error.category == "TRANSIENT":
        fix = "see whether this machine reaches the platform (proxy, firewall, DNS, certificates), and ask again"
        return fail(error.message, fix, **named), error.scope == "platform"
    fix = f"see that {channel.target_id or 'the account'} is right, and that the bot is there as an administrator"
    return fail(error.message, fix, **named), False


def _elsewhere(finding: Finding) -> Finding:
    said = "its token is refused, see platforms.credentials"
    return skipped(said, workspace_id=finding.workspace_id, subject=finding.subject)


def _clock(platform: str, skew: float) -> Finding:
    if abs(skew) <= SKEW:
        return ok("its clock and this machine's agree", subject=platform)
    said = f"the clock of {platform} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    return (fail if abs(skew) > WILD_SKEW else warn)(said, "set up NTP on this machine", subject=platform)


def _said_of(me: Identity) -> str:
    return f"{me.name}, account {me.account_id}"


def _named(channel: Channel) -> dict[str, str | None]:
    subject = channel.channel_id or f"{channel.platform} {channel.auth_ref}"
    return {"workspace_id": channel.workspace_id, "subject": subject}


def _host(url: str) -> str:
    """Paths of webhooks hold secrets."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


async def _accounts(patient: Patient) -> list[Channel]:
    return [_channel(row) for row in await patient.rows(_ACCOUNTS, patient.workspace_id, patient.workspace_id)]


def _channel(row: dict[str, Any]) -> Channel:
    names = ("workspace_id", "channel_id", "platform", "target_id", "auth_ref", "rate_group")
    return Channel(**{name: row[name] for name in names}, settings=row["settings"])


PLATFORMS = (
    Check("platforms.credentials", credentials, outside=True, patience=60.0),
    Check("platforms.rights", rights, outside=True, patience=300.0),
    Check("platforms.webhooks", webhooks, outside=True, patience=60.0),
)

# Those in use by a channel, and those that are stored: a token may be wrong long before a channel needs it. Only platforms:
# a credential of a source is nobody's account.
_ACCOUNTS = """
select distinct workspace_id, '' as channel_id, platform, '' as target_id, auth_ref, '' as rate_group, '{}'::jsonb as settings
from (select c.workspace_id, c.platform, coalesce(a.auth_ref, c.auth_ref) as auth_ref
      from autopost.channels c
      left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
      where c.workspace_id = coalesce(%s, c.workspace_id)
      union
      select b.workspace_id, b.platform, b.auth_ref from core.credential_bindings b
      where b.workspace_id = coalesce(%s, b.workspace_id)
        and exists (select from autopost.channels c where c.workspace_id = b.workspace_id and c.platform = b.platform)) used
join core.workspaces w using (workspace_id)
where w.status <> 'disabled'
order by 1, 3, 5 limit 200
"""

# Those with refusals first.
_CHANNELS = """
select * from (
    select c.workspace_id, c.channel_id, c.platform, c.target_id, coalesce(a.auth_ref, c.auth_ref) as auth_ref, c.rate_group,
           c.settings, count(*) over credential as of,
           row_number() over (credential order by c.error_streak > 0 desc, c.channel_id) as nth
    from autopost.channels c
    join core.workspaces w on w.workspace_id = c.workspace_id and w.status <> 'disabled'
    left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
    where c.workspace_id = coalesce(%s, c.workspace_id) and (c.enabled or c.error_streak > 0)
    window credential as (partition by c.workspace_id, c.platform, coalesce(a.auth_ref, c.auth_ref))) ranked
where nth <= %s
order by workspace_id, platform, auth_ref, nth
"""
