"""The parts of `svelto.SVMTreeClassifier`.

rows (scaled, merged) -> directions (node problems) -> growth (a chain) -> duels (all chains) -> held_out
(cross-validation) -> placement (where chains end) -> train (puts it together) -> answers (predicts).
"""
