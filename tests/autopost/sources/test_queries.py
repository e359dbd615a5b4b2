"""A user's query becomes the driver's: one statement that reads, with its two parameters, and nothing else changed."""

from __future__ import annotations

import pytest

from vestnik.autopost.sources.databases.dsn import Engine
from vestnik.autopost.sources.databases.query import translated

ENGINES: tuple[Engine, ...] = ("postgresql", "mysql", "sqlite")
ENDS = " where a > :watermark limit :limit"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("postgresql", "select '10 %%' where a > %(watermark)s limit %(limit)s"),
        ("mysql", "select '10 %%' where a > %(watermark)s limit %(limit)s"),
        ("sqlite", "select '10 %' where a > :watermark limit :limit"),
    ],
)
def test_parameters_are_written_as_the_driver_wants_them(engine: Engine, expected: str) -> None:
    assert translated(f" select '10 %'{ENDS};\n", engine) == expected


@pytest.mark.parametrize(
    ("engine", "quoted"),
    [
        ("postgresql", "'it''s; :no into'"),
        ("postgresql", r"E'it\'s; :no'"),
        ("postgresql", '"; :no"'),
        ("postgresql", "$$; ' :no$$"),
        ("postgresql", "$a$; $$ :no$a$"),
        ("postgresql", "a::text -- ; :no\n"),
        ("postgresql", "1 /* ; :no\n */"),
        ("mysql", r"'it\'s; :no'"),
        ("mysql", '"; :no"'),
        ("mysql", "`; :no`"),
        ("mysql", "1 # ; :no\n"),
        ("sqlite", "[; :no]"),
        ("sqlite", "'; '':no'"),
    ],
)
def test_what_is_quoted_is_nobodys_business(engine: Engine, quoted: str) -> None:
    assert quoted in translated(f"select {quoted}{ENDS}", engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "query",
    [
        f"select 1{ENDS}; drop table x",
        f"insert into x select 1{ENDS}",
        f"select 1 into x{ENDS}",
        f"update x set a = 1{ENDS}",
        f"explain select 1{ENDS}",
        f"-- select\ndelete from x{ENDS}",
        f"select 'open{ENDS}",
        "select :watermark",
        "select :limit",
        f"select :other{ENDS}",
        "",
        ";",
    ],
)
def test_what_does_more_than_read_is_refused(engine: Engine, query: str) -> None:
    with pytest.raises(ValueError, match=r"must|knows|has a quote"):
        translated(query, engine)


@pytest.mark.parametrize("comment", ["/*! into outfile '/x' */", "/*!50000 x */", "/*M! x */"])
def test_a_comment_that_mysql_would_run_is_refused(comment: str) -> None:
    with pytest.raises(ValueError, match="a comment that the server would run"):
        translated(f"select 1 {comment}{ENDS}", "mysql")


@pytest.mark.parametrize(
    "query", [f"with x as (select 1) select * from x{ENDS}", f"( select 1{ENDS} )", f"values (1){ENDS}"]
)
def test_every_way_to_read_is_taken(query: str) -> None:
    for engine in ENGINES:
        assert translated(query, engine)
