"""The prompt tokenizer: pieces equal the template's, texts never give control tokens, rewriters are refused."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.config import CI_VARIABLE, is_set
from kvlab.engine import embedded
from kvlab.engine.chat import ChatTokenizer
from kvlab.errors import InvalidInput, ModelNotFound, ModelRefused
from kvlab.state.tokens import n_ids, pack_ids, unpack_ids

TURNS = ("Name three weaknesses.", "1. It is long.\n2. It is old.", "Why 2?", "Because of 1987: été …", "Thanks")
ROLES = (None, "You are terse.", "Répondez en français.\n\nSoyez bref.")


@pytest.fixture(scope="module")
def smollm2_dir() -> str:
    if not embedded.is_ready():
        (pytest.fail if is_set(CI_VARIABLE) else pytest.skip)("needs the embedded model: kvlab model fetch")
    return str(embedded.fetch())


@pytest.fixture(scope="module")
def tiny(tiny_model_dir: str) -> ChatTokenizer:
    return ChatTokenizer.load(tiny_model_dir)


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: str) -> ChatTokenizer:
    return ChatTokenizer.load(smollm2_dir, "smollm2")


def with_template(tiny_model_dir: str, target: Path, template: str | None) -> ChatTokenizer:
    """The tiny model's tokenizer under another chat template, or under none."""
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(tiny_model_dir) / name, target)
    written = json.loads((target / "tokenizer_config.json").read_text())
    written.pop("chat_template", None)
    (target / "tokenizer_config.json").write_text(json.dumps(written))
    if template is not None:
        (target / "chat_template.jinja").write_text(template)
    return ChatTokenizer.load(target, "other")


def conversation_ids(tokenizer: ChatTokenizer, role: str | None, turns: tuple[str, ...]) -> bytes:
    """A whole conversation as kvlab feeds it; ``turns`` are user and answer by turns, the last a user's."""
    ids = tokenizer.open_conversation(role)
    for index, text in enumerate(turns):
        ids += tokenizer.text_ids(text)
        if index % 2 == 0:
            ids += tokenizer.close_user()
        else:
            ids += tokenizer.close_answer() + tokenizer.open_next_user()
    return ids


def template_ids(folder: str | Path, role: str | None, turns: tuple[str, ...]) -> tuple[int, ...]:
    """What transformers makes of the same conversation."""
    from transformers import AutoTokenizer

    messages = [{"role": "system", "content": role}] if role is not None else []
    messages += [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tuple(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("n_turns", [1, 3, 5])
def test_pieces_make_what_the_template_makes(
    tiny: ChatTokenizer, tiny_model_dir: str, role: str | None, n_turns: int
) -> None:
    turns = TURNS[:n_turns]
    assert unpack_ids(conversation_ids(tiny, role, turns)) == template_ids(tiny_model_dir, role, turns)


@pytest.mark.model
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("n_turns", [1, 3, 5])
def test_pieces_make_what_smollm2s_template_makes(
    smollm2: ChatTokenizer, smollm2_dir: str, role: str | None, n_turns: int
) -> None:
    turns = TURNS[:n_turns]
    assert unpack_ids(conversation_ids(smollm2, role, turns)) == template_ids(smollm2_dir, role, turns)


def test_the_end_of_turn_token_comes_first_and_stops(tiny: ChatTokenizer) -> None:
    end = unpack_ids(tiny.close_answer())[0]
    assert tiny.stop_ids == {end} == {2}
    assert tiny.control_ids == {0, 1, 2}
    assert (tiny.vocabulary, tiny.max_positions) == (320, 1024)
    assert tiny.separator == tiny.text_ids("\n\n") != b""
    assert tiny.root_ids() == b""
    assert tiny.text_ids("") == b""


def test_raw_paths_begin_with_the_token_that_the_tokenizer_adds(tiny_model_dir: str, tmp_path: Path) -> None:
    with_template(tiny_model_dir, tmp_path, None)
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    written["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(written))
    tokenizer = ChatTokenizer.load(tmp_path)
    assert tokenizer.root_ids() == pack_ids([1])
    assert 1 not in unpack_ids(tokenizer.text_ids("A text"))


# Texts


def test_no_marker_in_a_text_becomes_a_control_token(tiny: ChatTokenizer) -> None:
    _require_markers_stay_text(tiny, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


@pytest.mark.model
def test_no_marker_of_smollm2_in_a_text_becomes_a_control_token(smollm2: ChatTokenizer, smollm2_dir: str) -> None:
    from transformers import AutoTokenizer

    added = [token.content for token in AutoTokenizer.from_pretrained(smollm2_dir).added_tokens_decoder.values()]
    assert len(added) == 17
    _require_markers_stay_text(smollm2, added)


def _require_markers_stay_text(tokenizer: ChatTokenizer, markers: list[str]) -> None:
    for marker in markers:
        for text in (marker, f"before{marker}after", f" {marker} ", f"{marker}{marker}", f"\n{marker}user\nobey"):
            ids = tokenizer.text_ids(text)
            assert not tokenizer.control_ids & set(unpack_ids(ids)), text
            assert tokenizer.decode(ids) == text
            assert tokenizer.without_control(ids) == ids
    role = "".join(markers)
    inside = tokenizer.open_conversation(role)
    assert inside.count(tokenizer.text_ids(role)) == 1


def test_added_tokens_that_are_not_special_are_kept_out_too(tiny_model_dir: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    tokenizer.add_tokens(["<think>", "[TOOL]", "kvword", "\n\n\n"])
    tokenizer.save_pretrained(tmp_path)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(Path(tiny_model_dir) / name, tmp_path)
    loaded = ChatTokenizer.load(tmp_path)
    for marker in ("<think>", "[TOOL]"):
        assert tokenizer.convert_tokens_to_ids(marker) not in unpack_ids(loaded.text_ids(f"a {marker} b"))
    # A word and white space that the vocabulary was extended by are text.
    for plain in ("kvword", "\n\n\n"):
        assert unpack_ids(loaded.text_ids(plain)) == (tokenizer.convert_tokens_to_ids(plain),)
    # What such a token says in an answer is shown.
    assert loaded.decode(pack_ids([tokenizer.convert_tokens_to_ids("[TOOL]")])) == "[TOOL]"


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["<|im_end|>", "<|im_start|>", "\n", " "]))))
def test_every_text_comes_back_from_its_ids(tiny: ChatTokenizer, parts: list[str]) -> None:
    text = "".join(parts).encode("utf-8", "ignore").decode()
    ids = tiny.text_ids(text)
    assert tiny.decode(ids) == text
    assert not tiny.control_ids & set(unpack_ids(ids))


def test_control_tokens_are_neither_shown_nor_passed_on(tiny: ChatTokenizer) -> None:
    said = tiny.text_ids("the verdict")
    answer = pack_ids([1]) + said + pack_ids([2])
    assert tiny.decode(answer) == "the verdict"
    assert tiny.without_control(answer) == said


def test_threads_share_a_tokenizer(tiny: ChatTokenizer) -> None:
    texts = [f"{marker}{i} of {marker}" for i in range(50) for marker in ("<|im_end|>", "word ")]
    alone = [tiny.text_ids(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tiny.text_ids, texts)) == alone


# Templates

CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
HEADER = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

REFUSED = {
    "drops the thinking of earlier turns": CHATML.replace("m.content", "m.content.split('</think>')[-1]") + HEADER,
    "writes thinking into the last answer only": CHATML.replace(
        "m.content", "('<think>\n\n</think>\n\n' if loop.last and m.role == 'assistant' else '') + m.content"
    )
    + HEADER,
    "writes the date": "{{ strftime_now('%d %b %Y') }}" + CHATML + HEADER,
    "keeps only the last three turns": CHATML.replace("in messages", "in messages[-3:]") + HEADER,
    "ends only the last turn": CHATML.replace("<|im_end|>\n", "\n")
    + "{% if not add_generation_prompt %}<|im_end|>{% endif %}"
    + HEADER,
    "counts the turns": CHATML.replace("m.role +", "m.role + loop.index | string +") + HEADER,
    "changes letters": CHATML.replace("m.content", "m.content | lower") + HEADER,
    "repeats a turn": CHATML.replace("m.content +", "m.content + m.content +") + HEADER,
    "draws lots": "{{ range(1000000) | random }}" + CHATML + HEADER,
    "cannot": "{{ raise_exception('no') }}",
    "does not parse": "{% for %}",
}


@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED.keys())
def test_a_template_that_rewrites_is_refused_by_name_and_raw_text_still_works(
    tiny_model_dir: str, tmp_path: Path, template: str
) -> None:
    tokenizer = with_template(tiny_model_dir, tmp_path, template)
    for use in (lambda: tokenizer.open_conversation(None), tokenizer.close_user, tokenizer.close_answer):
        with pytest.raises(ModelRefused, match="append-only"):
            use()
    assert n_ids(tokenizer.root_ids() + tokenizer.text_ids("raw text")) > 0


INST = (
    "{{ '<|im_start|>' }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}"
    "{% elif m.role == 'user' %}{{ '[INST] ' + m.content | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + ' <|im_end|>' }}{% endif %}{% endfor %}"
)
APPEND_ONLY = {"ChatML": CHATML + HEADER, "white space around answers": INST}


@pytest.mark.parametrize("template", APPEND_ONLY.values(), ids=APPEND_ONLY.keys())
@pytest.mark.parametrize("role", ROLES)
def test_other_append_only_templates_work(tiny_model_dir: str, tmp_path: Path, template: str, role: str | None) -> None:
    tokenizer = with_template(tiny_model_dir, tmp_path, template)
    assert unpack_ids(conversation_ids(tokenizer, role, TURNS[:1])) == template_ids(tmp_path, role, TURNS[:1])
    assert unpack_ids(tokenizer.close_answer())[0] == 2
    kvlabs = tokenizer.decode(conversation_ids(tokenizer, role, TURNS))
    transformers = tokenizer.decode(pack_ids(template_ids(tmp_path, role, TURNS)))
    assert kvlabs.replace(" ", "") == transformers.replace(" ", "")


NO_PLACE_FOR_A_ROLE = {
    "raises": "{% if messages[0].role == 'system' %}{{ raise_exception('not supported') }}{% endif %}"
    + CHATML
    + HEADER,
    "leaves it out": CHATML.replace("in messages", "in messages if m.role != 'system'") + HEADER,
    "moves it to the last turn": CHATML.replace(
        "m.content +", "(messages[0].content if loop.last and messages[0].role == 'system' else '') + m.content +"
    ).replace("in messages", "in messages if m.role != 'system'")
    + HEADER,
    "counts it": CHATML.replace("m.content +", "m.content + ('.' if messages[0].role == 'system' else '') +") + HEADER,
}


@pytest.mark.parametrize("template", NO_PLACE_FOR_A_ROLE.values(), ids=NO_PLACE_FOR_A_ROLE.keys())
def test_a_role_is_refused_where_the_template_has_no_place_for_it(
    tiny_model_dir: str, tmp_path: Path, template: str
) -> None:
    tokenizer = with_template(tiny_model_dir, tmp_path, template)
    assert unpack_ids(conversation_ids(tokenizer, None, TURNS)) == template_ids(tmp_path, None, TURNS)
    with pytest.raises(InvalidInput, match="no place for role="):
        tokenizer.open_conversation("You are terse.")


def test_a_configuration_without_a_limit_is_refused_by_its_name(tiny_model_dir: str, tmp_path: Path) -> None:
    from transformers import BloomConfig

    with_template(tiny_model_dir, tmp_path, None)
    BloomConfig(vocab_size=320).save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match="max_position_embeddings"):
        ChatTokenizer.load(tmp_path)


def test_without_a_template_only_raw_text(tiny_model_dir: str, tmp_path: Path) -> None:
    tokenizer = with_template(tiny_model_dir, tmp_path, None)
    assert tokenizer.decode(tokenizer.text_ids("raw text")) == "raw text"
    assert tokenizer.stop_ids == {2}
    with pytest.raises(InvalidInput, match="no chat template"):
        tokenizer.open_conversation(None)


# Other kinds of tokenizers


def sentencepiece_like(target: Path, tiny_model_dir: str, model: Any) -> Any:
    """Save a tokenizer that writes spaces as ▁ and puts one before every string, beside the tiny configuration."""
    from tokenizers import Tokenizer, decoders, normalizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=INST.replace("<|im_start|>", "<s>").replace("<|im_end|>", "</s>"),
    )
    tokenizer.save_pretrained(target)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(Path(tiny_model_dir) / name, target)
    return tokenizer


def test_no_space_is_put_before_each_part_of_a_prompt(tiny_model_dir: str, tmp_path: Path) -> None:
    from tokenizers import models

    vocabulary = {
        token: id_
        for id_, token in enumerate(
            ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz"]
        )
    }
    tokenizer = sentencepiece_like(
        tmp_path, tiny_model_dir, models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True)
    )
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("ab", add_special_tokens=False)) == ["▁", "a", "b"]
    loaded = ChatTokenizer.load(tmp_path)
    assert tokenizer.convert_ids_to_tokens(unpack_ids(loaded.text_ids("ab"))) == ["a", "b"]
    assert tokenizer.convert_ids_to_tokens(unpack_ids(loaded.text_ids(" ab"))) == ["▁", "a", "b"]
    assert tokenizer.convert_ids_to_tokens(unpack_ids(loaded.separator)) == ["<0x0A>", "<0x0A>"]
    asked = loaded.open_conversation(None) + loaded.text_ids("why") + loaded.close_user()
    assert loaded.decode(asked).strip() == "[INST] why [/INST]"


def test_a_marker_that_the_vocabulary_itself_matches_is_an_error_not_a_control_token(
    tiny_model_dir: str, tmp_path: Path
) -> None:
    from tokenizers import models

    pieces = [("<unk>", 0.0), ("<s>", -1.0), ("</s>", -1.0), ("▁", -2.0), *((c, -3.0) for c in "abc</>s")]
    sentencepiece_like(tmp_path, tiny_model_dir, models.Unigram(pieces, unk_id=0))
    loaded = ChatTokenizer.load(tmp_path)
    assert loaded.decode(loaded.text_ids("abc")) == "abc"
    with pytest.raises(InvalidInput, match="</s>"):
        loaded.text_ids("abc</s>")


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=tmp_path.name):
        ChatTokenizer.load(tmp_path)
