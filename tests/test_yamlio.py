"""Strict YAML: what is read, what is refused, where a message points, and what --set does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from dspark_sim.errors import InputError, ScenarioError
from dspark_sim.yamlfile import MAX_BYTES
from dspark_sim.yamlio import StrictModel, apply_overrides, dotted, parse_scalar, parse_yaml, read_yaml, validated


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0), ("1e-3", 0.001), (".5", 0.5), ("1.", 1.0), ("-.5e-2", -0.005), ("6.02E+23", 6.02e23),
        ("0", 0), ("-7", -7), ("+7", 7), ("1_000", 1000), ("1_0.5", 10.5),
        ("true", True), ("FALSE", False), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("~", None), ("null", None), ("", None), ("Null", None), ("nUll", "nUll"),
        ("2026-01-31", "2026-01-31"), ("2026-01-31 10:00:00", "2026-01-31 10:00:00"), ("1:30", "1:30"),
        ("010", "010"), ("0o10", "0o10"), ("0x10", "0x10"), ("007", "007"), ("0b1", "0b1"), ("1__0", "1__0"),
        ("'5'", "5"), ('"true"', "true"), ("'~'", "~"), ("=", "="), ("nan", "nan"), ("inf", "inf"), ("e5", "e5"),
        ("[1, 2]", [1, 2]), ("{a: 1}", {"a": 1}), ("a b c", "a b c"), ("-", [None]),
    ],
)
def test_scalars_mean_what_they_look_like(text: str, value: Any) -> None:
    got = parse_scalar(text)
    assert got == value
    assert type(got) is type(value)


def test_infinity_and_nan_are_numbers_that_models_refuse() -> None:
    assert parse_scalar(".inf") == float("inf")
    assert parse_scalar(".nan") != parse_scalar(".nan")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: *x", "1: a: YAML anchors and aliases"),
        ("a: *x", "1: a: YAML anchors and aliases"),
        ("&k a: 1", "a key must be a plain word"),
        ("a: !!python/object/apply:os.system [ls]", "tag 'tag:yaml.org,2002:python/object/apply:os.system' is not"),
        ("a: !!int '5'", "tag 'tag:yaml.org,2002:int' is not allowed"),
        ("a: ! 5", "tag '!' is not allowed"),
        ("a: !!binary aGk=", "tag"),
        ("a: !mine {}", "tag '!mine' is not allowed"),
        ("x: 1\n<<: {a: 1}", ":2: a key must be a plain word"),
        ("? [a]\n: b", "a key must be a plain word"),
        ("? {a: 1}\n: b", "a key must be a plain word"),
        ("a: 1\nb: 2\na: 3", ":3: a: stands twice"),
        ("a: {b: 1, b: 2}", ":1: a.b: stands twice"),
        ("a: 1\n---\nb: 2", ":2: only one YAML document"),
        ("a: 1\n--- \n", ":2: only one YAML document"),
        ("a: 1\n...\nb", "is not valid YAML"),
        ("[" * 50_000, "is nested too deeply; allowed: at most 40 levels"),
        ("{a: " * 50_000, "is nested too deeply"),
        ("- " * 5_000, "is nested too deeply"),
        ("a:\n\tc: d", ":2: is not valid YAML (found character '\\t'"),
        ("a: 'x", "is not valid YAML"),
        ("a: [1, 2", "is not valid YAML"),
        ("a: b: c", ":1: is not valid YAML (mapping values are not allowed here)"),
        ("a: x\nb: \x00", ":2: is not text: character 0x0"),
        ("a: \x1b[31m", "is not text: character 0x1b"),
        ('a: "\\ud800"', "a lone surrogate"),
        ('"\\udc00": 1', "a lone surrogate"),
        ("a: " + "9" * 401, "at most 400 digits"),
        ("%YAML 9.9\n---\na: 1", "is not valid YAML"),
        ("%TAG ! tag:x,2000:\n---\n!a 1", "tag"),
    ],
)
def test_clever_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_yaml(text, Path("f.yaml"), ScenarioError)
    assert message in str(caught.value)
    assert str(caught.value).startswith("f.yaml")
    assert len(str(caught.value)) < 300


def test_a_billion_laughs_cost_nothing() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
    )
    with pytest.raises(InputError, match="anchors and aliases"):
        parse_yaml(bomb)


def test_keys_are_words_whatever_they_look_like() -> None:
    got = parse_yaml("1: a\ntrue: b\n~: c\n1.5: d\n'': e").data
    assert got == {"1": "a", "true": "b", "~": "c", "1.5": "d", "": "e"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_document_is_none(text: str) -> None:
    assert parse_yaml(text).data is None


def test_every_key_and_item_knows_its_line() -> None:
    document = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    assert [document.line(p) for p in (("a",), ("a", "b"), ("a", "c", 0), ("a", "c", 1, "d"))] == [1, 2, 4, 5]
    assert document.line(("a", "b", "nothing", 7)) == 2  # the nearest parent
    assert dotted(("a", "c", 1, "d")) == "a.c[1].d"


# -- files ---------------------------------------------------------------------------------------------------------
def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_yaml(path).data == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not UTF-8 text (byte 0)"),
        ("name: é".encode("latin-1"), "is not UTF-8 text (byte 6)"),
        ("a: 1".encode("utf-16"), "is not UTF-8 text"),
        (b"a: " + b"x" * MAX_BYTES, f"bytes long; allowed: at most {MAX_BYTES}"),
        (b"PAR1\x00\x01\x02PAR1", "is not text: character 0x0"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_yaml(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(InputError, match=r"no such file|cannot be read"):
        read_yaml("\0.yaml")
    with pytest.raises(InputError, match=r"no such file|cannot be read"):
        read_yaml("x" * 5000)


# -- overrides -----------------------------------------------------------------------------------------------------
TEXT = "a: {b: 1, c: {d: 2}}\nlist:\n  - {name: one, x: 1}\n  - {name: two, x: 2}\n  - 3\nempty:\n"


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("a.b", 5, ("a", "b")), ("a.c.d", [1], ("a", "c", "d")), ("new.deep.key", 1, ("new", "deep", "key")),
        ("empty.now", 1, ("empty", "now")), ("list.0.x", 9, ("list", 0, "x")), ("list.two.x", 9, ("list", 1, "x")),
        ("list.2", 4, ("list", 2)), ("list.one", "gone", ("list", 0)), ("a", None, ("a",)),
    ],
)
def test_overrides_reach_any_key(key: str, value: Any, path: tuple[str | int, ...]) -> None:
    document = parse_yaml(TEXT)
    got: Any = apply_overrides(document, {key: value})
    here = got.data
    for part in path:
        here = here[part]
    assert here == value
    assert document.data == parse_yaml(TEXT).data  # the original is as it was
    assert got.origin(path) == (None, f"--set {key}")
    assert got.origin((*path, "below")) == (None, f"--set {key}.below")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("a.b.c", "--set a.b.c: a.b holds 1, which has no key 'c'"),
        ("list.three.x", "--set list.three.x: no such item 'three'; allowed: one, two, 0 to 2"),
        ("list.tow.x", "(did you mean 'two'?)"),
        ("list.3", "no such item '3'"),
        ("list.-1", "no such item '-1'"),
        ("list.²", "no such item"),
        ("list.99999999999999999999", "no such item"),
        ("a..b", "has an empty part; allowed: a dotted key"),
        ("", "has an empty part"),
        (".", "has an empty part"),
    ],
)
def test_overrides_that_lead_nowhere(key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        apply_overrides(parse_yaml(TEXT), {key: 1}, ScenarioError)
    assert message in str(caught.value)


def test_overriding_a_file_that_is_no_mapping() -> None:
    with pytest.raises(InputError, match="the file holds 'word', which has no key 'a'"):
        apply_overrides(parse_yaml("word"), {"a": 1})


# -- models --------------------------------------------------------------------------------------------------------
class Left(StrictModel):
    kind: Literal["left"]
    size: int = Field(default=1, ge=1, le=5)


class Right(StrictModel):
    kind: Literal["right"]
    width: float = 1.0


class Model(StrictModel):
    count: int = 1
    rate: float = 1.0
    word: str = "x"
    flag: bool = True
    shape: Annotated[Left | Right, Field(discriminator="kind")] = Left(kind="left")
    many: Annotated[tuple[Left, ...], Field(strict=False, max_length=2)] = ()
    either: int | Literal["unlimited"] | None = None
    free: dict[str, Left] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count: 1.5", "f.yaml:1: count: got 1.5; allowed: a whole number"),
        ("count: 1.0", "count: got 1.0; allowed: a whole number"),
        ("count: '1'", "count: got '1'; allowed: a whole number"),
        ("count: true", "count: got True; allowed: a whole number"),
        ("count: 010", "count: got '010'; allowed: a whole number"),
        ("rate: .nan", "rate: got nan; allowed: a finite number"),
        ("rate: .inf", "rate: got inf; allowed: a finite number"),
        ("rate: 1" + "0" * 390, "rate: got 1000"),
        ("word: 5", "word: got 5; allowed: a word (in quotes if it looks like a number)"),
        ("word: [a]", "word: got ['a']; allowed: a word"),
        ("flag: yes", "flag: got 'yes'; allowed: true or false"),
        ("shape: {kind: lfet}", "shape.kind: got 'lfet'; allowed: left, right (did you mean 'left'?)"),
        ("shape: {size: 3}", "shape: needs the key kind; allowed: left, right"),
        ("shape: 3", "shape: got 3; allowed: a mapping of keys"),
        ("shape: {kind: left, width: 3}", "shape.width: unknown key; allowed: kind, size"),
        ("shape: {kind: right, widht: 3}", "shape.widht: unknown key; allowed: kind, width (did you mean 'width'?)"),
        ("shape:\n  kind: left\n  size: 6", "f.yaml:3: shape.size: got 6; allowed: a number ≤ 5"),
        ("many: [{kind: left}, {kind: left, size: 0}]", "many[1].size: got 0; allowed: a number ≥ 1"),
        ("many: {}", "many: got {}; allowed: a list"),
        ("many: [{kind: left}, {kind: left}, {kind: left}]", "allowed: at most 2 of them"),
        ("many: [{kind: left, sise: 1}]", "many[0].sise: unknown key; allowed: kind, size (did you mean 'size'?)"),
        ("either: limitless", "either: got 'limitless'; allowed: a whole number or unlimited"),
        ("either: unlimitd", "(did you mean 'unlimited'?)"),
        ("free: {a: {kind: left, sise: 1}}", "free.a.sise: unknown key; allowed: kind, size (did you mean 'size'?)"),
        ("cuont: 1", "f.yaml:1: cuont: unknown key; allowed: count, rate"),
        ("rate: 1\ncuont: 1\nwrod: x", "f.yaml:2: cuont: unknown key (and 1 more mistake after this one)"),
        ("", "f.yaml: is empty, not a mapping of keys; allowed: count, rate"),
        ("[1]", "got [1], not a mapping of keys"),
    ],
)
def test_messages_of_models(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        validated(Model, parse_yaml(text, Path("f.yaml"), ScenarioError), ScenarioError)
    assert message in str(caught.value)


def test_a_mistake_in_an_override_is_told_first_and_by_its_option() -> None:
    document = apply_overrides(parse_yaml("cuont: 1\nshape: {kind: left}", Path("f.yaml")), {"shape.size": 9})
    with pytest.raises(InputError) as caught:
        validated(Model, document)
    assert str(caught.value).startswith("f.yaml: --set shape.size: got 9 (and 1 more")


def test_models_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Model().count = 2  # type: ignore[misc]
