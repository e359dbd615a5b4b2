"""Which media travel together, whatever they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vestnik.adapters.contract import MediaItem
from vestnik.adapters.grouping import slots, together

FAMILIES = st.lists(st.sampled_from(["seen", "file", "audio", None]), min_size=1, max_size=60)


@given(FAMILIES, st.integers(2, 10))
def test_nothing_is_lost_moved_or_left_over(families: list[str | None], most: int) -> None:
    groups = together(families, most)

    assert [place for group in groups for place in group] == list(range(len(families)))
    for group in groups:
        assert len({families[place] for place in group}) == 1
        assert 1 <= len(group) <= most
        if len(group) == 1 and families[group[0]] is not None:
            neighbours = families[max(0, group[0] - 1) : group[0]] + families[group[0] + 1 : group[0] + 2]
            assert families[group[0]] not in neighbours or most == 2
        assert families[group[0]] is not None or len(group) == 1


@given(FAMILIES, st.integers(2, 10))
def test_no_fewer_groups_would_do(families: list[str | None], most: int) -> None:
    runs = [len(run) for run in together(families, 1000)]
    assert len(together(families, most)) == sum(-(-run // most) for run in runs)


def test_eleven_are_six_and_five() -> None:
    assert [len(group) for group in together(["seen"] * 11, 10)] == [6, 5]
    assert [len(group) for group in together(["seen"] * 25, 10)] == [9, 8, 8]


def test_the_same_media_has_the_same_name() -> None:
    items = [
        MediaItem("image", blob_ref="a"),
        MediaItem("image", blob_ref="b"),
        MediaItem("image", blob_ref="a"),
        MediaItem("file", blob_ref="a"),  # a photo's handle is none of a document
    ]
    assert slots(items) == ["attach://media0", "attach://media1", "attach://media0", "attach://media3"]
