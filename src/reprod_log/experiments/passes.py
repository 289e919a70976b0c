"""Passes: every run of two programs that a verdict needs, put together into one recording per side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.capture.eager import runner_of
from reprod_log.capture.live import live_model
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, first_line
from reprod_log.experiments.evaluation import evaluated
from reprod_log.experiments.need import Storage
from reprod_log.experiments.regions import run_alone
from reprod_log.frameworks.contract import Call, Capability, Rounding
from reprod_log.frameworks.side import NARROW, Batch, Scope, Side, StandIns, as_mapping
from reprod_log.frameworks.tensors import rounded
from reprod_log.measure.comparison import measure_pair
from reprod_log.measure.metrics import rows_measured
from reprod_log.messages import Foreign, Message, Name, Note, Number, Parts, message
from reprod_log.pairing import Pair, Pairing
from reprod_log.pairing.arguments import arranged, begins_elsewhere, has_other_axes, with_shared_outputs
from reprod_log.pairing.entries import keeps_weights
from reprod_log.pairing.layouts import time_and_batch_exchanged
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.models import Layers, match_layers
from reprod_log.pairing.places import ValuePairs
from reprod_log.pairing.recorded_map import recorded_map
from reprod_log.progress import Stage, stage
from reprod_log.recording import PHASES, Array, Entry, Key, Recording
from reprod_log.recording.program import of_one_program
from reprod_log.recording.spool import Spool

FLOAT64 = "float64"
EMULATED = "emulated"
_ACTIVATIONS = {
    "dynamic": "word.activations.dynamic",
    "static": "word.activations.static",
    "": "word.activations.none",
}
_BY_SCHEME: tuple[Rounding, ...] = ("declared", "fitted")
_INJECTED_PHASES = tuple(phase for phase in PHASES if phase != "clip")
"""A gradient that was put in differs from the one computed, which would look like clipping."""


class Experiments:
    """Every pass of both programs, put together into one recording per side."""

    def __init__(
        self,
        ours: Side,
        theirs: Side,
        batches: list[Batch],
        rename: Mapping[str, str],
        notes: Sequence[Note] = (),
        tables: tuple[str, ...] = (),
        weights: WeightMap | None = None,
        storage: Storage | None = None,
        packed: Side | None = None,
        *,
        counts: Array | None = None,
        gradients: bool = True,
    ) -> None:
        """`gradients`: whether layers that run alone are run back, too."""
        self._storage = storage or Storage()
        self.ours, self.theirs, self.batches, self.rename = ours, theirs, batches, rename
        self.packed = packed
        """A quantised candidate as it runs; `theirs` is then the same unrounded, with the reference's weights."""
        self.quick, self.detailed = self._storage.quick, self._storage.detailed
        self._gradients, self._counts = gradients, counts
        self._stage = Stage(None, message("progress.passes"), 0, "")
        self.complete: list[Message] = []
        """The passes that ran to their end."""
        self.stopped = False
        """Whether Ctrl-C came, and passes are missing."""
        self._notes: tuple[list[Note], list[Note]] = (list(self._storage.notes), list(notes))
        if self._storage.need is not None:
            self._notes[0].append(self._storage.need.note())
        self.weights = weights
        """The map under which both programs compute the same in float64, when there is one."""
        self.tables = tables
        """The candidate's buffers that had other values before the reference's were transferred."""
        self.calls: list[Call] = []
        """What each layer of the reference was given at its first call, once the layers were run alone."""
        self.their_calls: dict[str, Call] = {}
        """The same for the candidate's layers, by the reference's paths: the reference's tensors, as they take them."""
        self.partners: dict[str, str] = {}
        """The candidate's path for each layer of the reference that was run alone."""
        self.emulated = ""
        """The narrow type that only the candidate computes in, and in which the reference was run for it."""
        self._truth: dict[Key, Entry] = {}
        self._map = weights or WeightMap(())

    def recordings(self) -> tuple[Recording, Recording]:
        """The recording of each side, with all passes in it."""
        need = self._storage.need
        with stage(message("progress.passes") if need is None else need.advice(), self._passes()) as self._stage:
            return self._recordings()

    def _passes(self) -> int:
        """How many passes there will be, as far as it is known."""
        each_can = [side.framework.can for side in (self.ours, self.theirs)]
        alone = 4 if all("isolate" in can for can in each_can) else 0
        return 4 + sum(FLOAT64 in can for can in each_can) + alone + (2 if self._injects else 0)

    @property
    def _injects(self) -> bool:
        return not self.quick and self.ours.optimizer is not None and self.theirs.optimizer is not None

    def _recordings(self) -> tuple[Recording, Recording]:
        as_run = self.packed or self.theirs
        mains = [
            self._run(_pass("pass.as_it_runs", name), side, self.batches, Scope(full_steps=self.detailed))
            for name, side in (("reference", self.ours), ("candidate", as_run))
        ]
        reference, candidate = mains
        if self.ours.loss is not None and not any(entry.key.phase == "gradient" for entry in reference.entries):
            raise UsageError(
                "the loss of the reference depends on no weight that takes a gradient: are all of them frozen, or was "
                "the output detached? Leave loss and optimizer out to compare the forward pass alone."
            )
        self._check_repeats("reference", self.ours, reference)
        self._check_repeats("candidate", as_run, candidate)
        self.emulated = self._narrow_type(reference, candidate)
        self._stage.total += 2 if self.emulated else 0
        extra: tuple[list[Entry], list[Entry]] = ([], [])
        for place, (name, side) in enumerate((("reference", self.ours), ("candidate", self.theirs))):
            extra[place].extend(self._wide(name, side, place))
        further: tuple[tuple[Entry, ...], ...] = ()
        if self.packed is None:
            # Packed layers run in one mode, and not in float64.
            further = evaluated((self.ours, self.theirs), self.batches[0], mains)
        for more, found in zip(extra, further, strict=False):
            more.extend(found)
            if found and more is extra[1]:
                self._notes[1].append(message("note.experiments.evaluation", call=found[0].key.call or 0))
        self._truth = {entry.key: entry for entry in extra[0]}
        extra[0].extend(self._emulate())
        extra[1].extend(self._round())
        wide = [replace(main, entries=(*main.entries, *more)) for main, more in zip(mains, extra, strict=True)]
        layers = match_layers(wide[0], wide[1], rename=self.rename)
        self._map = self.weights or recorded_map(wide[0], wide[1], layers.units, {})
        done: tuple[list[Any], ...] = (*extra, self.complete)
        kept = list(map(len, done))
        try:
            if self._both_can("isolate"):
                self._isolate(reference, candidate, _alone(wide[0], wide[1], layers), extra)
                kept = list(map(len, done))
            self._note_scheme(extra)
            if self._injects:
                self._inject(reference, extra)
        except KeyboardInterrupt:
            # What only one side has done is no evidence.
            for some, count in zip(done, kept, strict=True):
                del some[count:]
            self.stopped = True
        whole = [
            of_one_program(replace(main, entries=(*main.entries, *more), notes=(*main.notes, *notes)))
            for main, more, notes in zip(mains, extra, self._notes, strict=True)
        ]
        return whole[0], whole[1]

    def weights_for(self, layer: str) -> dict[str, Array]:
        """The reference's values for the tensors of one of its layers, by the candidate's names and in its layouts."""
        models = {name: live_model(model) for name, model in as_mapping(self.ours.model).items()}

        def read(name: str) -> Array:
            root = next(one for one in models if not one or name.startswith(f"{one}."))
            return models[root].read(name.removeprefix(f"{root}."))

        links = [link for link in self._map.links if all(_is_below(name, layer) for name in link.sources)]
        return {link.target: link.apply([read(name) for name in link.sources]) for link in links}

    def fed(self, reference: Recording, pairing: Pairing) -> tuple[Entry, ...]:
        """The candidate in float64, every part of it fed with the reference's values; nothing where it cannot be.

        Modules go on with the reference's outputs and the gradients of these, steps begin with its parameters, and its
        gradients are what the optimizer is given. So each entry shows what is wrong at its own place only.
        """
        if FLOAT64 not in self.theirs.framework.can or FLOAT64 not in reference.runs:
            return ()
        gradients = _by_step(reference, "gradient", FLOAT64)
        # What the script itself writes (an average of weights) is left to the script.
        updated = {entry.key.path for entry in reference.of_run(FLOAT64) if entry.key.phase == "update"}
        before = {
            step + 1: {path: array for path, array in arrays.items() if path in updated}
            for step, arrays in _by_step(reference, "parameter", FLOAT64).items()
        }
        run = runner_of(self.theirs.framework).run
        scope = Scope(
            run=FLOAT64,
            dtype=FLOAT64,
            spool=self.spool,
            gradients={step: self._transfer(arrays) for step, arrays in gradients.items()},
            stand_ins=StandIns(
                _stand_ins(pairing, "forward"),
                _stand_ins(pairing, "backward"),
                {step: self._transfer(arrays) for step, arrays in before.items()},
            ),
        )
        try:
            found = run(self.theirs, self.batches[: self.detailed], scope)
            kept = [entry for entry in found.entries if entry.key.phase != "clip"]
            if len(kept) < len(found.entries):
                # Computed gradients that others were put in the place of look as if they had been clipped.
                scope = replace(scope, record_given=True, phases=("gradient", "clip"))
                clipped = run(self.theirs, self.batches[: self.detailed], scope)
                kept += (entry for entry in clipped.entries if entry.key.phase == "clip")
        except Exception:  # a loop may raise anything when it is given other values than its own
            return ()
        return tuple(kept)

    def given_back(self, reference: Recording) -> dict[Key, Array]:
        """What the reference's models themselves give in float64, by the candidate's plain keys."""
        names = dict(zip(as_mapping(self.ours.model), as_mapping(self.theirs.model), strict=False))
        return {
            replace(key, path=names[key.path], run=""): entry.array()
            for entry in reference.of_run(FLOAT64)
            if (key := entry.key).phase == "forward" and key.path in names and key.role.startswith("output")
        }

    def _transfer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Gradients or parameters of the reference in the candidate's names and layouts."""
        return dict(self._map.gradients(arrays))

    def _both_can(self, capability: Capability) -> bool:
        """Whether both sides can do it; with a note about each that cannot."""
        ours, theirs = self._can(0, capability), self._can(1, capability)
        return ours and theirs

    def _can(self, place: int, capability: Capability) -> bool:
        framework = (self.ours, self.theirs)[place].framework
        if capability not in framework.can:
            self._notes[place].append(message(f"note.experiments.cannot.{capability}", framework=framework.name))
        return capability in framework.can

    def _reported(self, what: Message, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._stage(len(self.complete), what)
        result = do(*args, **kwargs)
        if self.spool is not None:
            self.spool.check()
            self.spool.settle()
        self.complete.append(what)
        self._stage(len(self.complete), what)
        return result

    @property
    def spool(self) -> Spool | None:
        """Where the arrays of all runs go; None: memory."""
        return self._storage.spool

    def _run(self, what: Message, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        run = runner_of(side.framework).run
        recording: Recording = self._reported(what, run, side, batches, replace(scope, spool=self.spool))
        return recording

    def _check_repeats(self, name: str, side: Side, recording: Recording) -> None:
        """Another seed must not change anything: random numbers other than masks of dropout cannot be shared."""
        scope = Scope(run="repeat", seed=1)
        # A step of the user's own may change weights before its first call, where the step before it is not over yet.
        batches = self.batches[: 1 if side.step is None else 2]
        again = self._run(_pass("pass.again", name), side, batches, scope)
        for entry in again.entries:
            first = str(entry.key.in_run(""))
            if entry.key.step or first not in recording:
                continue
            measured = measure_pair(Pair(recording[first], entry)).measurement
            if measured is not None and (measured.differing or measured.nonfinite_mismatched):
                raise CaptureError(
                    f"the {name} does not repeat itself: {first} differs by {measured.max_abs:.3g} between two runs "
                    "with other seeds. It draws random numbers that are no masks of dropout, or its kernels are not "
                    "deterministic. Put the models in eval mode, or draw the numbers once and pass them as inputs."
                )

    def _wide(self, name: str, side: Side, place: int) -> tuple[Entry, ...]:
        scope = Scope(run=FLOAT64, dtype=FLOAT64, full_steps=self.detailed)
        if not self._can(place, "float64"):
            return ()
        try:
            recording = self._run(_pass("pass.float64", name), side, self.batches, scope)
        except ReprodLogError:
            raise
        except Exception as error:  # a kernel without float64 may raise anything; its message is the note
            self._notes[place].append(message("note.experiments.no_float64", why=Foreign(first_line(error))))
            return ()
        return recording.entries

    def _narrow_type(self, reference: Recording, candidate: Recording) -> str:
        """The type narrower than float32 that only the candidate computes in, if the reference can be run in it."""
        theirs = self.theirs.narrow or _narrow_results(candidate)
        if theirs is None or theirs == (self.ours.narrow or _narrow_results(reference)):
            return ""
        return theirs if self._can(0, "emulate") else ""

    def _emulate(self) -> tuple[Entry, ...]:
        """The reference's first step in the candidate's narrow type: what that type alone does to it."""
        if not self.emulated:
            return ()
        scope = Scope(run=EMULATED, dtype=self.theirs.narrow, emulated=self.emulated)
        what = _pass("pass.emulated", "reference", dtype=self.emulated)
        recording = self._run(what, self.ours, self.batches[:1], scope)
        self._notes[0].append(self._cost(recording))
        return recording.entries

    def _round(self) -> Iterator[Entry]:
        """The candidate's first step with the reference's weights, rounded in each way: what its scheme does."""
        for way in _BY_SCHEME if self.packed is not None else ():
            what = _pass("pass.rounded", "candidate")
            yield from self._run(what, self.theirs.rounding(way), self.batches[:1], Scope(run=way)).entries

    def _note_scheme(self, extra: tuple[list[Entry], list[Entry]]) -> None:
        """What the candidate's scheme costs, and where."""
        if self.packed is None:
            return
        schemes = self.packed.schemes
        entries = {one.key: one for one in extra[1]}
        results = [one for one in extra[1] if one.key.run == _BY_SCHEME[0] and one.key.phase == "forward"]
        pairs = [(self._truth.get(one.key.in_run(FLOAT64)), one) for one in results[-1:]]
        alone = {
            path: _apart(entries[found], entries[rounded])
            for path in schemes
            if (rounded := Key(path, "forward", 0, 0, "output", f"isolated.{_BY_SCHEME[0]}")) in entries
            and (found := rounded.in_run(f"isolated.{FLOAT64}")) in entries
        }
        layer = max(alone, key=alone.__getitem__, default="")
        kinds = sorted({one.activations for one in schemes.values() if one.activations})
        note = message(
            "note.experiments.quantised",
            count=len(schemes),
            held=len(alone),
            dtype=", ".join(sorted({one.dtype for one in schemes.values()})),
            activations=Parts(message(_ACTIVATIONS[kind]) for kind in kinds or ("",)),
            share=Number(max((_apart(truth, one) for truth, one in pairs if truth is not None), default=0.0), ".2g"),
            layer=Name(layer),
            most=Number(alone.get(layer, 0.0), ".2g"),
        )
        self._notes[1].append(note)
        for truth, one in pairs:
            if truth is not None and len(one.shape) > 1 and one.shape[-1] > 1 and one.shape == truth.shape:
                measured = rows_measured(truth.array(), one.array(), ("kl", "top1"))
                kl, top1 = Number(measured["kl"], ".2g"), Number(100 * measured["top1"], ".2g")
                self._notes[1].append(message("note.experiments.quantised.logits", kl=kl, top1=top1))

    def _cost(self, emulated: Recording) -> Message:
        """What the narrow type alone does to the reference's results: less than that cannot be seen in it."""
        results = [one for one in emulated.entries if one.key.phase == "forward" and one.key.role.startswith("output")]
        shares = [
            measured.rel_l2
            for entry in results[-1:]
            if (truth := self._truth.get(entry.key.in_run(FLOAT64))) is not None
            and (measured := measure_pair(Pair(truth, entry)).measurement) is not None
        ]
        share = Number(100 * max(shares, default=0.0), ".2g")
        return message("note.experiments.emulated", dtype=self.emulated, share=share)

    def _isolate(
        self,
        reference: Recording,
        candidate: Recording,
        alone: Mapping[str, str],
        extra: tuple[list[Entry], list[Entry]],
    ) -> None:
        # A step may set the modes itself.
        self.ours, self.theirs = (
            replace(self.ours, training=_modes(reference)),
            replace(self.theirs, training=_modes(candidate)),
        )
        known = self._storage.calls
        calls = list(runner_of(self.ours.framework).calls(self.ours, self.batches[0]) if known is None else known)
        # A model's partner is the other model, whatever is between its layers.
        roots = as_mapping(self.ours.model).keys() & as_mapping(self.theirs.model).keys()
        partners = {**{root: root for root in roots}, **alone}
        there = {call.path: partners[call.path] for call in calls if call.path in partners}
        self.partners = there
        if self.theirs.narrow is not None:
            narrow = self.theirs.narrow
            calls = [call.changed(lambda array: rounded(array, narrow)) for call in calls]
        calls, self.their_calls = self._both_calls(calls, candidate)
        self.calls = calls
        same = {path: path for path in there}
        here_info = {module.path: module for module in reference.modules}
        there_info = {module.path: module for module in candidate.modules}
        exchanged = {
            path
            for path, other in there.items()
            if path in here_info
            and other in there_info
            and time_and_batch_exchanged(here_info[path], there_info[other])
        }
        for place, (name, side, paths, swap) in enumerate(
            (("reference", self.ours, same, set[str]()), ("candidate", self.theirs, there, exchanged))
        ):
            given = calls if place == 0 else list(self.their_calls.values())
            as_run = side if place == 0 else self.packed or side
            passes = [(as_run, Scope(run="isolated")), (side, Scope(run=f"isolated.{FLOAT64}", dtype=FLOAT64))]
            if place == 0 and self.emulated and self.theirs.narrow:
                passes.append((side, Scope(run=f"isolated.{EMULATED}", dtype=self.emulated, emulated=self.emulated)))
            if place == 1 and self.packed is not None:
                passes += [(side.rounding(way), Scope(run=f"isolated.{way}")) for way in _BY_SCHEME]
            for run, scope in passes:
                entries, notes = self._reported(
                    _pass("pass.alone", name),
                    run_alone,
                    run,
                    given,
                    replace(scope, spool=self.spool, counts=self._counts),
                    paths=paths,
                    exchanged=swap,
                )
                extra[place].extend(entries)
                self._notes[place].extend(notes)

    def _both_calls(self, calls: Sequence[Call], candidate: Recording) -> tuple[list[Call], dict[str, Call]]:
        """The calls of both sides; modules of the user's own are given arguments as they take them.

        Layers of which one begins earlier (it pads its input, and the other is given it padded), or has its channels
        elsewhere, have no call in common.
        """
        own = {module.path for module in candidate.modules if module.path and not module.kind}
        seen = {call.path: call for call in runner_of(self.theirs.framework).calls(self.theirs, self.batches[0])}
        backward = self._both_can("gradient") and self._gradients and self.packed is None
        ours: list[Call] = []
        theirs: dict[str, Call] = {}
        for call in calls:
            partner = self.partners.get(call.path, "")
            other = seen.get(partner)
            known = other if call.path in self.partners else None
            if known is not None and (
                begins_elsewhere(call, known) or (partner in own and has_other_axes(call, known))
            ):
                self.partners.pop(call.path)
                continue
            call = call if other is None else with_shared_outputs(call, other)
            # Without an output that is given a gradient, nothing goes back on either side.
            call = call if backward else replace(call, shared=frozenset())
            ours.append(call)
            fitting = arranged(call, other) if other is not None and partner in own else call
            if fitting is not None:
                theirs[call.path] = fitting
            else:
                framework = self.theirs.framework.name
                self._notes[1].append(
                    message("note.experiments.other_tensors", path=Name(partner), framework=framework)
                )
        return ours, theirs

    def _inject(self, reference: Recording, extra: tuple[list[Entry], list[Entry]]) -> None:
        gradients = _by_step(reference, "gradient")
        last = max(gradients, default=0)
        theirs = _ByStep(gradients, self._transfer)
        # With its own gradients the reference runs as it ran before.
        extra[0].extend(
            replace(entry, key=entry.key.in_run("injected"))
            for entry in reference.of_run("")
            if entry.key.phase in _INJECTED_PHASES and (entry.key.step or 0) <= last
        )
        passes: tuple[tuple[int, str, Side, str | None, Mapping[int, Mapping[str, Array]]], ...] = (
            (0, "reference", self.ours, FLOAT64, gradients),
            (1, "candidate", self.theirs, None, theirs),
        )
        for place, name, side, dtype, given in passes:
            run = f"injected.{dtype}" if dtype else "injected"
            scope = Scope(run=run, dtype=dtype, phases=_INJECTED_PHASES, gradients=given)
            try:
                what = _pass("pass.injected", name)
                recording = self._run(what, side, self.batches[: self.detailed], scope)
            except ReprodLogError:
                raise
            except Exception as error:  # as above: a kernel without float64
                self._notes[place].append(message("note.experiments.not_injected", why=Foreign(first_line(error))))
                continue
            extra[place].extend(recording.entries)


def _apart(truth: Entry, other: Entry) -> float:
    """How far apart two entries are, in percent of the first."""
    measured = measure_pair(Pair(truth, other)).measurement
    return 0.0 if measured is None else 100 * measured.rel_l2


def _pass(id: str, side: str, **more: str) -> Message:
    return message(id, side=message(side), **more)


def _narrow_results(recording: Recording) -> str | None:
    """The narrow type that layers' results are of: of a model that keeps wider weights, by autocast."""
    weights = {entry.dtype for entry in recording.of_run("") if entry.key.phase == "parameter"}
    results = {entry.dtype for entry in recording.of_run("") if entry.key.phase == "forward"}
    found = results.intersection(NARROW) if weights.isdisjoint(NARROW) else set()
    return found.pop() if len(found) == 1 else None


def _alone(reference: Recording, candidate: Recording, layers: Layers) -> dict[str, str]:
    """The layers that can be run alone: those that take and give the same, and others with a partner of their own.

    A node of a graph may stand for several layers: it is run alone only on what its partner was given.
    """
    values = ValuePairs.of(reference.entries, candidate.entries)
    taken = set(values.modules.values())
    others = {
        path: partner
        for path, (partner, _) in layers.modules.items()
        if path not in values.modules and partner not in taken
    }
    if not (keeps_weights(reference) and keeps_weights(candidate)):
        places = [(ours, theirs) for ours, (theirs, _) in values.places.items()]
        fed = {one[0] for one, other in places if one[2].startswith("input") and others.get(one[0]) == other[0]}
        back = {partner: path for path, partner in others.items()}
        elsewhere = {
            path
            for one, other in places
            if one[2].startswith("output") and others.get(one[0]) != other[0]
            for path in (one[0], back.get(other[0]))
        }
        others = {path: partner for path, partner in others.items() if path in fed - elsewhere}
    return {**values.modules, **others}


def _is_below(name: str, layer: str) -> bool:
    return not layer or name.startswith(f"{layer}.")


class _ByStep(Mapping[int, Mapping[str, Array]]):
    """Gradients of every step in another side's layouts, made when they are asked for: those of one step at a time."""

    def __init__(
        self, given: Mapping[int, Mapping[str, Array]], made: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    ) -> None:
        self._given, self._made = given, made

    def __getitem__(self, step: int) -> Mapping[str, Array]:
        return self._made(self._given[step])

    def __iter__(self) -> Iterator[int]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def _by_step(recording: Recording, phase: str, run: str = "") -> dict[int, dict[str, Array]]:
    """The raw gradients or the parameters of a run, by step and name."""
    found: dict[int, dict[str, Array]] = {}
    for entry in recording.of_run(run):
        if entry.key.phase == phase and entry.key.role in ("", "raw") and entry.key.step is not None:
            found.setdefault(entry.key.step, {})[entry.key.path] = entry.array()
    return found


def _stand_ins(pairing: Pairing, phase: str) -> dict[Key, Array]:
    """What modules of the reference give in float64, or the gradients of that, by the candidate's plain keys."""
    found: dict[Key, Array] = {}
    for pair in pairing.pairs:
        key = pair.reference.key
        if key.run != FLOAT64 or key.phase != phase or key.role.startswith("input") or pair.view is not None:
            continue
        if pair.reference.detail == "full" and pair.reference.dtype.startswith("float"):
            found[pair.candidate.key.in_run("")] = pair.reference.array()
    # A tensor that several backward passes reach has a gradient for each.
    several = {_first_pass(key) for key in found if "~" in key.role}
    return {key: array for key, array in found.items() if _first_pass(key) not in several}


def _modes(recording: Recording) -> dict[str, bool]:
    """Whether each module was in training mode at its first call."""
    found: dict[str, bool] = {}
    for entry in recording.of_run(""):
        if "training" in entry.meta:
            found.setdefault(entry.key.path, bool(entry.meta["training"]))
    return found


def _first_pass(key: Key) -> Key:
    """The key of the first backward pass through a tensor."""
    return Key(key.path, key.phase, key.step, key.call, key.role.partition("~")[0])
