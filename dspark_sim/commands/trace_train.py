"""``dspark-sim trace train``: a drafter for a target, from responses of the target."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.atomic import written_aside
from dspark_sim.commands.lab_output import counted
from dspark_sim.commands.output import emit, note
from dspark_sim.errors import InputError, nearest

if TYPE_CHECKING:
    from dspark_sim.lab.corpus import Document
    from dspark_sim.lab.train import Progress, TrainSettings

__all__ = ["layers_of", "train_command"]


def train_command(
    kind: str, *, target: str, corpus: Path, out: Path, block_size: int, layers: int, head: str, rank: int,
    confidence: bool, draft_vocabulary: int, layer_ids: Sequence[int] | None, steps: int, sequences: int, anchors: int,
    learning_rate: float, seed: int, precision: str, validation: Path | None, device: str, threads: int | None,
    plot: bool, warm: bool,
) -> None:
    """Compute features that are missing, train (or go on training), write the checkpoint, its log and loss curve."""
    from dspark_sim.lab.checkpoint import save_drafter
    from dspark_sim.lab.corpus import corpus_facts, read_corpus
    from dspark_sim.lab.drafters.config import HEADS, KINDS
    from dspark_sim.lab.features import draft_vocabulary_of
    from dspark_sim.lab.setup import default_layers, fold_scale, new_drafter
    from dspark_sim.lab.target import device_named, load_target, set_threads
    from dspark_sim.lab.train import TrainSettings, train
    from dspark_sim.lab.warm import fit_ridge, warm_start

    _one_of(kind, KINDS, "KIND")
    _one_of(head, HEADS, "--head")
    _one_of(precision, ("bfloat16", "float32"), "--precision")
    trained_on = read_corpus(corpus, split="train")  # says what is missing before a model is opened
    heat = corpus_facts(corpus).get("temperature", 1.0)
    if heat != 1:
        raise InputError(f"sampled at temperature {heat:g}", file=corpus / "corpus.json", key="temperature",
                         allowed="1: the losses compare with the target's own probabilities")
    if validation is not None:
        _kept_apart(trained_on, read_corpus(validation, split="held-out"), validation)
    set_threads(threads)
    where = device_named(device)
    model = load_target(target, device=where, dtype=precision, tokenizer=True)
    every = _layers_kept(corpus, {*(layer_ids or default_layers(model.layers)), model.layers - 1})
    for folder in (corpus,) if validation is None else (corpus, validation):
        _written_by(model, folder)
    store = _store(model, corpus, corpus / "features", every, "train")
    held = None if validation is None else _store(model, validation, validation / "features", every, "held-out")
    ids = None if draft_vocabulary >= model.vocab_size else draft_vocabulary_of(store, draft_vocabulary)
    drafter = new_drafter(
        model, kind, block_size=block_size, layers=layers, head=head, rank=rank,  # type: ignore[arg-type]
        confidence=confidence, draft_ids=ids, layer_ids=None if layer_ids is None else tuple(layer_ids), seed=seed,
    )
    softcap, state = model.softcap, out / "training.safetensors"
    if held is not None:
        held.rescale(store)
    if warm and not state.exists():
        warm_start(drafter, fit_ridge(drafter, store))
    del model  # the target is only needed for features
    settings = TrainSettings(steps=steps, sequences=sequences, anchors=anchors, learning_rate=learning_rate, seed=seed,
                             precision=precision)
    with counted("steps", steps, 0) as advance:
        log = train(drafter, store, settings, softcap=softcap, validation=held, checkpoint=state,
                    progress=lambda p: advance(p.step, _words(p)))
    fold_scale(drafter, store)
    save_drafter(drafter, out, embedding=False)
    _write_log(out, log, settings, store, ids is not None)
    if plot:
        from dspark_sim.plots import draw_training

        draw_training({out.name: log}, out / "training.png")
    last = [p for p in log if p.split == ("train" if held is None else "validation")][-1]
    emit(f"{out}: {kind}, {steps} steps, {steps * sequences * anchors:,} blocks, {last.seconds / 60:.1f} min; "
         f"{last.split}: {_words(last)}\n")
    note("the checkpoint uses its target's embedding and head; `dspark-sim trace collect` takes it from here")


def _one_of(value: str, allowed: Sequence[str], key: str) -> None:
    if value not in allowed:
        raise InputError(f"got {value!r}", key=key, allowed=", ".join(allowed), suggestion=nearest(value, allowed))


def _kept_apart(train: Sequence[Document], held: Sequence[Document], where: Path) -> None:
    """Raises InputError where a held-out response answers a prompt that training sees."""
    seen = {tuple(d.prompt.tolist()) for d in train}
    both = sum(tuple(d.prompt.tolist()) in seen for d in held)
    if both:
        raise InputError(f"{both} of its {len(held)} held-out responses answer prompts of the training corpus",
                         file=where, key="--validation", allowed="corpora of one --split-seed and one --held-out share")


def _written_by(model: Any, corpus: Path) -> None:
    """Raises InputError where another target wrote the responses: its token ids may mean something else."""
    from dspark_sim.lab.corpus import corpus_facts

    wrote = corpus_facts(corpus).get("target")
    if wrote != model.name:
        raise InputError(f"target {model.name!r}", file=corpus / "corpus.json", key="target",
                         allowed=f"{wrote!r}, which wrote these responses")


def layers_of(text: str | None) -> tuple[int, ...] | None:
    """``"1,5,9"`` -> (1, 5, 9).

    Raises:
        InputError: not of that form.
    """
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"got {text!r}", key="--target-layers", allowed="numbers, as in 1,5,9,13,17") from None


def _layers_kept(corpus: Path, wanted: set[int]) -> tuple[int, ...]:
    """The layers of the corpus's feature store where it has all that are wanted, else those."""
    from dspark_sim.lab.features import stored_layers

    kept = stored_layers(corpus / "features")
    return kept if wanted <= set(kept) else tuple(sorted(wanted))


def _store(model: Any, corpus: Path, folder: Path, layer_ids: tuple[int, ...], split: str) -> Any:
    from dspark_sim.lab.features import FeatureStore, build_store

    parts = len(list(corpus.glob("part-*.parquet")))
    with counted("features", parts, len(list(folder.glob("part-*.safetensors")))) as advance:
        build_store(model, corpus, folder, layer_ids, split=split, progress=lambda done, _: advance(done, ""))
    return FeatureStore(folder)


def _words(p: Progress) -> str:
    chain = " ".join(f"{a:.2f}".lstrip("0") for a in p.acceptance)
    return f"{p.split} loss {p.loss:.3f}, acceptance {chain}, length {p.tau:.2f}"


def _write_log(out: Path, log: Sequence[Progress], settings: TrainSettings, store: Any, reduced: bool) -> None:
    """training.csv (a row per logged step) and training.json (what decided it)."""
    G = len(log[0].acceptance)
    with written_aside(out / "training.csv") as path, path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "split", "loss", "length", "cross_entropy", "confidence_loss", "seconds",
                         *(f"acceptance_{k + 1}" for k in range(G))])
        for p in log:
            writer.writerow([p.step, p.split, f"{p.loss:.5f}", f"{p.tau:.4f}", f"{p.cross_entropy:.4f}",
                             f"{p.confidence:.4f}", f"{p.seconds:.1f}", *(f"{a:.4f}" for a in p.acceptance)])
    facts = {"settings": asdict(settings), "sequences": len(store), "reduced_vocabulary": reduced,
             "corpus": store.facts["corpus"], "seconds": log[-1].seconds}
    with written_aside(out / "training.json") as path:
        path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
