"""What must not be kept of a text: phones, addresses of people, tokens, passwords, authorization headers.

The rules are those of ``core.redact_text``, letter by letter, so both languages mask the same: they are written in what
Python's and PostgreSQL's regular expressions have in common, and each alternative that matches first is also the longest.
Every unbounded run begins behind something that occurs once in it, so the time grows with the text and no faster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
DEEPEST = 32  # levels of a value; what lies deeper is masked as a whole

# Letters, digits and signs of an address; names of domains; what stands between the digits of a phone.
_L = r"A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-"
_D = r"A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-"
_T = r"A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff"
_AT = (
    r"(?:@(?![1-4]x[.])|%(?:25){0,2}40|&(?:#(?:0{0,5}64|[xX]0{0,5}40)|commat);|\\{1,8}(?:u00|x)40"
    r"| ?[\[(](?:at|AT|собака)[\])] ?)"
)
_DOT = r"(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)"
_SEP = r"[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}"
# A value behind a name: quoted, quoted inside of a quoted text, or bare.
_QUOTED = r"""(\\+")(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]|\\.)*|(')[^']*"""

_PEM = r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-[^-])*(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
_USERINFO = (
    r"""://(?:[^/:@ \t\r\n"'<>]*:(?![0-9]{1,5}/)[^/ \t\r\n"'<>]*(?:/[^/@ \t\r\n"'<>]*){0,3}|[^/ \t\r\n"'<>]*)@"""
)
_HEADER = (
    r"""((?:authorization|x-auth[a-z-]{0,20})\\*["']?[ \t]*[=:][ \t]*)(?:"""
    + _QUOTED
    + r"""|digest[^\r\n]*|(?:[a-z][a-z0-9-]*[ \t]+)?[^ \t\r\n"',;&}]+)"""
)
_COOKIE = r"""(cookie2?\\*["']?[ \t]*[=:][ \t]*)(?:""" + _QUOTED + r"""|[^ \t\r\n"'{}\[\]][^\r\n"'{}\[\]]*)"""
_PASS = r"[pрР][aаА][sѕЅ]{2}(?:w[oоО]rd|wd|[pрР]hr[aаА][sѕЅ][eеЕ])"  # also with the other alphabet's letters that look alike
_NAMED = (
    rf"((?:{_PASS}|(?<![a-z])(?:pass|auth)(?=\\*[\"']|=)|pwd|[sѕЅ][eеЕ][cсС]r[eеЕ]t(?!ar[iy])|t[oоО][kкК][eеЕ]n(?!s)"
    r"|api[._-]?key|(?:access|private|signing|auth)[_-]?key|signature|credential|sess(?:ion)?[_-]?(?:id|key)"
    r"|[Пп][Ааa][Ррp][Ооo][Лл][ЬьЯяЮю]|[Ттt][Ооo][Ккk][Ееe][Нн]|[Ссc][Ееe][Ккk][Ррp][Ееe][Ттt](?![Аа][Рр]))[a-z0-9_-]{0,30}"
    r"""\\*["']?[ \t\r\n]*(?:=>?|:|%(?:25){0,2}3[da]|\\{1,8}u003[da])[ \t\r\n]*)(?:"""
    + _QUOTED
    + r"""|«[^»]*»?|(?!(?:null|none|true|false)(?:[ \t\r\n"'&,;{}\[\]()<>]|\Z))(?:(?:bearer|basic)[ \t]+)?"""
    r"""[^« \t\r\n"'&,;{}\[\]()<>][^ \t\r\n"'&,;{}\[\]()<>]*)"""
)
# Said to a program, put into an element, or the end of an address that is a key by itself.
_GIVEN = (
    r"""((?:^|[ \t"'])(?:(?:-u|--user|--proxy-user)[ =]["']?[^ \t\r\n"':=]{1,64}:"""
    r"""|--[a-z-]{0,30}(?:password|passwd|token|secret|api-?key)[a-z-]{0,20}[ ]["']?)"""
    r"""|hooks[.]slack[.]com/services/|discord(?:app)?[.]com/api/webhooks/)[^ \t\r\n"'<>]+"""
    r"|(<[a-z:_-]{0,30}(?:password|passwd|token(?!s)|secret|api-?key)[a-z_-]{0,20}>)[^<>]+"
)
_SCHEME = (
    r"((?:[Bb]earer|BEARER|[Bb]asic|BASIC)(?:[ \t\r\n]|%(?:25){0,2}20)+)(?!realm=)"
    r"(?:(?=[A-Za-z0-9._~+/:-]*(?:[0-9=_]|[a-z][A-Z]|[.][A-Za-z]))(?:[A-Za-z0-9._~+/=:-]{6,}|[A-Za-z0-9._~+/=:-]{1,5}\Z)"
    r"|[A-Za-z0-9._~+/=:-]{16,})"
)
_COLON = r"(?::|%(?:25){0,2}3[Aa]|\\{1,8}u003[Aa])"
_TOKEN = (
    rf"[0-9]{{5,20}}{_COLON}[A-Za-z0-9_-]{{20,}}"
    rf"|[0-9]{{6,20}}{_COLON}(?:AA[A-Za-z0-9_-]*|A[A-Za-z0-9_-]?\Z)"
    r"|v(?:key|push|sess|link)_(?:[A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]*\Z)|whsec_(?:[A-Za-z0-9+/=_-]{6,}|[A-Za-z0-9+/=_-]*\Z)"
    r"|eyJ[A-Za-z0-9_-]{6,}(?:[.][A-Za-z0-9_-]*){0,4}|eyJ[A-Za-z0-9_-]*\Z"
    r"|(^|[^A-Za-z0-9])(?:(?:sk-|[prs]k_(?:live|test)_|gh[oprsu]_|github_pat_|glpat-|glsa_|npm_|xox[abeprs]-|AIza|AQVN|ya29[.]|y0_"
    r"|vk1[.]a[.]|hf_|SG[.][A-Za-z0-9_-]{16,32}[.])[A-Za-z0-9_-]{16,}|A[KS]IA[0-9A-Z]{12,})"
)
_UNNAMED = (
    r"""((?:^|[^A-Za-z0-9_=-])(?![A-Za-z0-9_-]*(?:hash|sha256|sha1|md5|etag|id|ref|cursor)=)[A-Za-z0-9_-]*=["']?)"""
    r"(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-)(?=[A-Za-z0-9+_-]*[0-9])[A-Za-z0-9+_-]{32,}[A-Za-z0-9+/_=-]*"
    r"""|([?&](?:key|sig|sign|auth|hash|code)=)[^& \t\r\n\u00a0"'<>#]{8,}"""
)
_DOMAIN = rf"(?:[{_D}]+(?:{_DOT}[{_D}]+)*{_DOT}[{_T}][{_D}]+|\[[0-9A-Fa-f.:]{{3,45}}\])"
_EMAIL = (
    rf"(^|[^{_L}])"
    rf"""(?:[{_L}]+@(?:[{_T}][.{_D}]*)?\Z|(?:[{_L}]+|"[^"@\\<>]{{1,64}}"){_AT}{_DOMAIN}(?:[{_L}]*{_AT}{_DOMAIN})*)"""
)
_PLUS = (
    r"(?:\+|%2[Bb]|\\{1,8}u002[Bb])[ (]{0,2}(?![0-9]{4} [0-9]{4}-)"
    rf"(?:[1-9](?:{_SEP}[0-9]){{5,13}}\Z|7(?:(?:{_SEP}[0-9]){{10}}(?![0-9])|[0-9]{{11,14}}(?![0-9]))"
    rf"|[1-689](?:{_SEP}[0-9]){{7,14}}(?![0-9]))"
    r"|(?<![0-9A-Fa-f-])[2-6][0-9]{3}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4}(?![0-9A-Fa-f])"  # the number of a card
)
_PHONE = (
    # In one piece, and no negative number, which is a chat's.
    r"(^|[^0-9.-]|(?:^|[^0-9])[.]|[0-9A-Za-zА-Яа-яЁё]-)(?:00)?[78][3489][0-9]{9}(?![0-9A-Za-z_])(?![.][0-9])"
    rf"|(^|[^0-9.]|(?:^|[^0-9])[.])(?:[78][ -]?[(][3-9][0-9]{{0,4}}[)]?(?:{_SEP}[0-9]){{0,9}}\Z"
    rf"|(?:00[ -]?)?(?![78][0-9]{{10}})(?:[78]{_SEP}[(]?[347-9][0-9]{{2}}[)]?(?:{_SEP}[0-9]){{7}}"
    r"|[78](?:[ -][0-9]){10}(?![ -][0-9]))(?![0-9A-Za-z_])"
    r"|9[0-9]{2}[ -][0-9]{3}[ -][0-9]{2}[ -][0-9]{2}(?![0-9A-Za-z_])"
    rf"|[(][3489][0-9]{{2}}[)]{_SEP}[0-9]{{3}}{_SEP}[0-9]{{2}}{_SEP}[0-9]{{2}}(?![0-9])"
    r"|[(][2-9][0-9]{2}[)][ -]?[0-9]{3}-[0-9]{4}(?![0-9]))"
)
_CALLED = (
    r"((?:(?:^|[^A-Za-z])(?:[Tt]el(?:ephone)?|[Pp]hone|PHONE|[Mm]obile|[Ww]hats[Aa]pp)|_phone|[Тт]ел(?:ефон[а-я]{0,3})?|[Мм]об)"
    r"""(?:[ _]?n(?:umber|um|r|o))?[ "'.:=№\\]{1,6})[0-9(](?:[ ().-]{0,2}[0-9]){6,14}"""
)
# What hides a character from a rule and from nobody's eye: invisible ones, and other forms of the same sign.
_HIDING = (
    r"[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff"
    r"\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u3000\u3002\ufe62\ufe6b\uff01-\uff5e\U0001d7ce-\U0001d7ff]"
)
# Holds for whatever a rule holds for, and for little else: most texts are asked nothing more.
_SUSPICIOUS = (
    _HIDING
    + r"|[@=+]|%[24]|&#|&commat|u00[234]|x40|[\[(](?:at|[сС][оО][бБ]|[2-9][0-9]{2}[)])|private|auth|cookie|pass|pwd|secret|token|key"
    r"|signature|credential|sess|[пП][аА][рР][оО]|[тТ][оО][кК]|[сС][еЕ][кК]|bearer|basic|[0-9]{5}(?::|%3)|(?:push|sess|link)_|whsec_|eyj|sk-"
    r"|gh[oprsu]_|k_live|k_test|npm_|glsa|sg[.]|aqvn|asia|hooks|webhooks|-u |_pat_|glpat|xox|aiza|ya29|y0_|vk1|hf_|akia|tel|phone|mobile|whats|[тТ]ел|[мМ]об|(?<![0-9.])9[0-9]{2}[ -]|[0-9]{4}[ -][0-9]{4}[ -]"
    r"|[a-z][\u0400-\u04ff]|[\u0400-\u04ff][a-z]"
    rf"|(?<![0-9])(?:00[ -]?)?[78](?:{_SEP}[(]?[3-9]|[ -][0-9][ -])"
)

_RULES = (
    (re.compile(_PEM), MASK),
    (re.compile(_USERINFO), f"://{MASK}@"),
    (re.compile(_HEADER, re.IGNORECASE | re.ASCII | re.DOTALL), rf"\1\2\3\4{MASK}"),
    (re.compile(_COOKIE, re.IGNORECASE | re.ASCII | re.DOTALL), rf"\1\2\3\4{MASK}"),
    (re.compile(_NAMED, re.IGNORECASE | re.ASCII | re.DOTALL), rf"\1\2\3\4{MASK}"),
    (re.compile(_GIVEN, re.IGNORECASE | re.ASCII), rf"\1\2{MASK}"),
    (re.compile(_SCHEME), rf"\1{MASK}"),
    (re.compile(_TOKEN), rf"\1{MASK}"),
    (re.compile(_UNNAMED), rf"\1\2{MASK}"),
    (re.compile(_EMAIL), rf"\1{MASK}"),
    (re.compile(_PLUS), MASK),
    (re.compile(_PHONE), rf"\1\2{MASK}"),
    (re.compile(_CALLED), rf"\1{MASK}"),
)

_IS_SUSPICIOUS = re.compile(_SUSPICIOUS, re.IGNORECASE | re.ASCII)
_PLAIN = (
    dict.fromkeys(
        [*b"\xad", 0x34F, 0x61C, 0x115F, 0x1160, *range(0x180B, 0x180F), *range(0x200B, 0x2010), *range(0x202A, 0x202F),
         *range(0x2060, 0x2070), 0x20E3, *range(0xFE00, 0xFE10), 0xFEFF]
    )
    | {first + n: str(n % 10) for first, count in ((0x660, 10), (0x6F0, 10), (0x966, 10), (0x1D7CE, 50)) for n in range(count)}
    | {0xFF01 + n: chr(0x21 + n) for n in range(94)}
    | {0x3000: " ", 0x3002: ".", 0xFE62: "+", 0xFE6B: "@"}
)  # fmt: skip
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)|(?:^|[_-])pass\Z|pwd|secret(?!ar[iy])|token(?!s)|api[_-]?key|(?:access|private|signing)[_-]?key|authorization|signature"
    r"|credential|cookie|sess(?:ion)?[_-]?(?:id|key)|phone|e-?mail|[Пп]арол|[Тт]окен|[Сс]екрет|[Тт]елефон|[Пп]очта",
    re.IGNORECASE | re.ASCII,
)


def redact(text: str) -> str:
    """The text with a mask for each secret, and unchanged when it holds none."""
    if not _IS_SUSPICIOUS.search(text):
        return text
    redacted = plain = text.translate(_PLAIN)
    for rule, mask in _RULES:
        redacted = rule.sub(mask, redacted)
    return text if redacted == plain else redacted


def redact_value(value: Any, depth: int = 0) -> Any:
    """Every text inside, and whatever is named like a secret."""
    if isinstance(value, str):
        return redact(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= DEEPEST:
        return MASK
    if isinstance(value, Mapping):
        return _redact_pairs(value, depth)
    return [redact_value(item, depth + 1) for item in value]


def _redact_pairs(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    # The list form of headers and cookies: {"name": "Cookie", "value": "…"}.
    names_its_value = isinstance(value.get("name"), str) and _SECRET_NAME.search(value["name"])
    return {
        redact(name) if isinstance(name, str) else name: MASK
        if _may_be_secret(item)
        and ((names_its_value and name == "value") or (isinstance(name, str) and _SECRET_NAME.search(name)))
        else redact_value(item, depth + 1)
        for name, item in value.items()
    }


def _may_be_secret(value: Any) -> bool:
    return not (value is None or value == "" or isinstance(value, bool))
