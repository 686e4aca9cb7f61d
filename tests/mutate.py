"""Do the tests notice? One line of the library is changed at a time, and the tests nearest to it are run.

    python tests/mutate.py CLONE [PYTHON]

CLONE is a copy of the repository that may be changed, PYTHON the interpreter of an environment with what the tests need
(default: CLONE's .venv). A line that is no longer there is reported, so that this list can be brought up to date. The
exit status is the number of lines that no test noticed.
"""

import os
import pathlib
import subprocess
import sys

# File below src/onebyone, text, what it becomes, tests.
LINES = [
    (
        "methods/losses.py",
        "(observed[:, None] & observed).fill_diagonal_(False)",
        "(observed[:, None] & observed)",
        "test_losses.py test_ccp.py",
    ),
    ("methods/ccp.py", "old = present & ~self.in_batch(incoming.y)", "old = present", "test_ccp.py"),
    (
        "methods/ccp.py",
        "return weight.where(self.in_batch(incoming.y)[:, None], weight.detach())",
        "return weight",
        "test_ccp.py",
    ),
    (
        "methods/ccp.py",
        "1 - self.options.prototype_momentum",
        "self.options.prototype_momentum",
        "test_ccp.py test_golden.py",
    ),
    (
        "methods/supbyol.py",
        "follow(list(self.target.parameters()), online, 0)",
        "follow(online, list(self.target.parameters()), 0)",
        "test_supbyol.py",
    ),
    ("methods/er_ace.py", "among = among | ~self.observed", "among = among | self.observed", "test_er_ace.py"),
    ("methods/derpp.py", ".square().mean(1)", ".abs().mean(1)", "test_derpp.py"),
    (
        "methods/derpp.py",
        "return super().draw(incoming) + super().draw(incoming)",
        "return super().draw(incoming) * 2",
        "test_derpp.py",
    ),
    ("methods/mir.py", "return after - before", "return before - after", "test_mir.py"),
    ("methods/icarl.py", "self.old.copy_(self.observed)", "pass", "test_icarl.py"),
    ("memory/policies.py", "% (arrival + 1)", "% (arrival + 3)", "test_memory.py"),
    ("memory/memory.py", ".triu(1).any(1)", ".tril(-1).any(1)", "test_memory.py"),
    # Statistics
    (
        "statistics/sums.py",
        "sums / self.divisor(), alpha=-1",
        "sums / self.divisor(), alpha=-0.99",
        "test_moments.py test_discriminant.py",
    ),
    (
        "statistics/sums.py",
        "cross + cross.T + moved[:, None] * shift",
        "cross + cross.T",
        "test_moments.py",
    ),
    (
        "statistics/sums.py",
        "square[first:], square[:, first:] = 0, 0",
        "square[first:] = 0",
        "test_moments.py test_long_vectors.py test_patch_lda.py",
    ),
    (
        "statistics/criterion.py",
        "ratio / (1 - ratio * self.rr)",
        "ratio / (1 - self.rr)",
        "test_discriminant.py",
    ),
    (
        "statistics/criterion.py",
        "keeps = keeps.scatter(1, own, kept(self.weights.gather(1, own) - 1))",
        "keeps = keeps.clone()",
        "test_discriminant.py",
    ),
    (
        "statistics/criterion.py",
        "(-len(y) / 2 * torch.stack(losses))",
        "(-0.5 * torch.stack(losses))",
        "test_discriminant.py test_patch_lda.py test_told_apart.py",
    ),
    (
        "statistics/criterion.py",
        "target, usual = values @ wanted / wanted.sum()",
        "target, usual = 2 * (values @ wanted) / wanted.sum()",
        "test_discriminant.py test_patch_lda.py",
    ),
    (
        "statistics/discriminant.py",
        "factor * kept_squares * self.squares / 2 - self.middle",
        "factor * kept_squares * self.squares - self.middle",
        "test_discriminant.py test_patch_lda.py",
    ),
    (
        "statistics/discriminant.py",
        "self.solved.addr_(self.solved @ row, solved, alpha=-1 / divisor)",
        "self.solved.addr_(self.solved @ row, solved, alpha=-1)",
        "test_discriminant.py test_patch_lda.py",
    ),
    (
        "statistics/discriminant.py",
        "FAVOUR * (1 - (weights * len(weights) / total).clamp(max=1))",
        "FAVOUR * (1 - (weights / total).clamp(max=1))",
        "test_discriminant.py test_patch_lda.py",
    ),
    (
        "statistics/features.py",
        "torch.exp2(-deviation.where(varies, 1).log2().round())",
        "1 / deviation.where(varies, 1).square()",
        "test_long_vectors.py test_patch_lda.py test_told_apart.py",
    ),
    (
        "statistics/features.py",
        "varies = deviation > least",
        "varies = deviation > 0",
        "test_degenerate.py test_patch_lda.py test_long_vectors.py",
    ),
    (
        "nets/normalization.py",
        "torch.cat([self.normalised(part) for part in input.split(list(sizes))])",
        "self.normalised(input)",
        "test_nets.py test_engine.py test_pack.py test_methods.py",
    ),
    ("data/augmentation.py", "draw // size % size", "draw % size", "test_augmentation.py"),
    (
        "evaluation/metrics.py",
        "for t in range(j, tasks - 1)) - final[j]",
        "for t in range(j, j + 1)) - final[j]",
        "test_metrics.py",
    ),
    # The classifier
    (
        "estimator/classifier.py",
        "if after in state.slots and after not in renamed:",
        "if after in state.slots:",
        "test_estimator_verbs.py test_estimator.py",
    ),
    (
        "estimator/model.py",
        "if not counts[slot]:  # known, but never learnt",
        "if False:",
        "test_estimator_verbs.py test_estimator_labels.py test_estimator.py",
    ),
    (
        "estimator/predictor.py",
        "expected = rate * (count + 1)",
        "expected = rate * (count + 20)",
        "test_estimator_answers.py test_predictor.py test_told_apart.py test_typicality.py",
    ),
    (
        "estimator/evidence.py",
        "(counts >= FIRST) & (sample_keys(x) < int(share * EMPTY))",
        "sample_keys(x) < int(share * EMPTY)",
        "test_held_back.py",
    ),
    (
        "estimator/storage.py",
        "unsaved >= every or late",
        "unsaved > every or late",
        "test_autosave.py",
    ),
    # Runs
    ("runs/claim.py", "os.O_CREAT | os.O_EXCL | os.O_WRONLY", "os.O_CREAT | os.O_WRONLY", "test_claim.py"),
    ("runs/claim.py", "if self.attempt > ATTEMPTS:", "if self.attempt > 2 * ATTEMPTS:", "test_claim.py test_sweep.py"),
    ("runs/run.py", "self.position.steps += 1", "self.position.steps += 2", "test_run.py test_resume.py"),
    # The engine
    ("engine/pack.py", "self.waiting.append(name)", "pass", "test_pack.py"),
    ("executors/executor.py", "lost[name] < ATTEMPTS", "lost[name] < 1", "test_distributed.py"),
]


def main() -> int:
    clone = pathlib.Path(sys.argv[1]).resolve()
    python = sys.argv[2] if len(sys.argv) > 2 else str(clone / ".venv/bin/python")
    environment = {**os.environ, "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
    missed = 0
    for name, text, becomes, tests in LINES:
        path = clone / "src/onebyone" / name
        before = path.read_text() if path.is_file() else ""
        if text not in before:
            print("not found", name, "|", text)
            continue
        path.write_text(before.replace(text, becomes, 1))
        files = [f"tests/{file}" for file in tests.split()]
        command = [python, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", *files]
        try:
            done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        finally:
            path.write_text(before)
        caught = "\nFAILED " in done.stdout
        missed += not caught
        last = next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "")
        print("caught" if caught else f"MISSED ({done.returncode})", name, "|", text[:60], "|", last[:80], flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
