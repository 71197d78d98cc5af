"""Where the specification of the findings leaves a choice, and how the independent evaluator reads it."""

AMBIGUITIES: tuple[tuple[str, str], ...] = (
    (
        "A signal without a pair means `mismatch`; where it is absent `total`, else `staleness`.",
        "Chosen for each row and signal by what it logged. Findings about engines read mismatch, else total: by the"
        " letter ppo_kl 0.06 alone would be `engine_mismatch`. Variance and drift read staleness too.",
    ),
    (
        "A guard means: not judged while it holds.",
        "The row is skipped, by holds and by clearing alike, so a finding that stood before keeps standing."
        ' config["guarded"] = "false" counts such rows as false.',
    ),
    (
        "not at its top: then `solved` (info).",
        "At the top no_learning_signal is false, not skipped, and the same condition is `solved`; holds count the rows"
        " before the top was reached.",
    ),
    (
        "k of the newest n known rows; clear after 10 known rows.",
        "A new hold counts rows since the last end: else 3 of 20, 10 of 20 and 45 of 50 trip again on the old rows.",
    ),
    ("Hold and clear of a finding", "Each clause has its own; a finding stands while one of its clauses stands."),
    (
        "A condition on a mean or EMA of rows has no hold unless the table says one.",
        "The hold column of a finding holds for all its clauses: zeros 3 of 5, large gaps and EMAs 5 of 10 or 3 of 5.",
    ),
    (
        "Clear: an upper limit x 0.8.",
        "All limits of a clause but its noise and guards. Growth of 1.2 clears under 0.96.",
    ),
    (
        "An EMA against b counts beyond 4 s ...; a median of 5 against a median of 5 ...",
        "In every clause of that form, also where the table does not repeat `beyond noise`.",
    ),
    ("s over 200 rows", "The newest 200 values, so 199 differences; d over the windows within them, so 181."),
    ("holds, EMAs and spikes start anew", "Means and medians of rows do not; a finding that stands goes on standing."),
    (
        "peak: largest e15 from row 10 on",
        "From the 10th value of the average: after a restart the first are single rewards. The fall is judged in all.",
    ),
    ("e20 of 100 rows ago (of row 20 if younger)", "Row max(n - 100, 20) of the average; not rising before row 21."),
    ("r_lo, r_hi of sequence rewards", "Weighted quantiles of the atoms; a row without all of them gives its mean."),
    (
        "at its top: r_hi from sequence rewards (or a logged maximum)",
        "The largest logged maximum so far. Not where r_hi = r_lo: rewards that are all 0 would be at their top.",
    ),
    ("rewards are seen to lie in [0, 1]", "All row means, and all minima and maxima that were logged, lie there."),
    ("mean of the newest 10 rows", "Of as many as there are."),
    ("lag", "engine_lag, else version_lag_mean, of this row; `lag 0` is a known 0, `lag 0 or unknown` also none."),
    (
        "staleness kl_k3 at lag 0",
        "Only where the row knows a lag of 0: a log without lags is not judged by this level.",
    ),
    ("a known lag exceeds its usual", "Its median of rows 21 to 120, of the rows so far if there are fewer than 21."),
    ("router flips are known and high", "As moe_routing has it: > 1e-3 where replay is declared, or > 3 b."),
    ("median of rows 21 to 120", "Of known rows of the signal; from row 41 on, with as many as there are."),
    ("moe_routing beside engine_mismatch", "Trips and stands only in rows after which engine_mismatch stands."),
    ("k3_excess with the e-value", "k3_excess > 1 and ln_e_value > ln 10^6, the limits of the rule of before."),
    ("n_zero_tail > 3 N/(1 - P0)", "P0 = (n_mu_zero - n_zero_tail)/(n_tokens - n_zero_tail) of the row."),
    ("3 se of kl_k1", "sd(d)/sqrt(n) from kl_k2 and kl_k1; without kl_k2 only 0.1 mean abs d."),
    ("4 se of ratio_mean over 20 rows", "s/sqrt(20) with the run's own noise."),
    ("Temperature: Pearson, ratio_mean", "Their means of the 20 rows; the present value is the newest 5-row mean."),
    ("abs(ppl_ratio - 1) > 0.01 beyond noise", "Above 4 s of the run's own row-to-row noise."),
    ("finite in half of their rows before the first NaN", "In half of all rows before it; no rows before it: sparse."),
    ("1 in the last row of a run", 'Only where config["ended"] says that the last row is the run\'s.'),
    (
        "the spikes only with fall or entropy off",
        "grad_norm only, needed to trip and not to stand; 3 of 20 counts spikes.",
    ),
    (
        "rows with signal: grad_norm > 1e-3 of its peak",
        "Of its peak when the row came, so a spike of 1000 blinds nothing.",
    ),
    ("rows before lr stopped rising left out", "Before the first row whose lr is not above that of the row before."),
    ("no end tokens at all", "0 in all of the newest 20 rows (10 at the start)."),
    ("cut_at_limit, change", "The mean of 20 rows > 0.2 and > 2 b, and the EMA above b beyond noise."),
    ("in 18 of the first 20 rows, later 45 of 50", "Each sign has its own count; from row 21 on 45 of the newest 50."),
    ("length", "response_length_median where logged, else the mean; entropy: the trainer's, else sampled_entropy."),
    ("the 5 around 100 rows earlier", "Rows n - 102 to n - 98, counted from 1; growth is known from row 14 on."),
    (
        "KL x2, clip_fraction x2, drift_spread doubled, + 0.2",
        "Over the same two medians of 5 as the growth of lengths.",
    ),
    ("No level is guarded.", "In entropy_explosion, where it stands; the level of entropy_collapse is guarded."),
    ("the mean of 20 rows < 0.8 x that of 50 rows before", "Against the 20 rows that ended 50 rows earlier."),
    ("up by half", "> 1.5 b."),
    (
        "variance_blowup, moderate_drift in one row",
        "variance_blowup: ess_token, chi2_token > 1, grad_variance; moderate_drift: chi2_token > 0.3, the spreads, the"
        " growth of k3.",
    ),
    (
        "evaluation 20% (of its range so far) below its peak in 2 running",
        "No noise, from the third evaluation on: it fires in 26 of 60 healthy series of 150 rows, evaluated every"
        " 4 rows; with 4 s of the evaluations besides in 0.",
    ),
    ("on the main evaluation: 3 running", "The same fall of eval_reward (at least 10 evaluations), 3 running."),
    ("r at r_lo within noise for 50 rows", "mean of 50 rows - r_lo <= 4 s/sqrt(50)."),
    ("version_span, duplicate prompts, collapse_risk", "Left out: no condition, no name, a model."),
    ("onset of a level on means or sums", "By the row's own value against the level."),
    ("running median of 3, back to the last row within", "Centred; the onset is the row after."),
    (
        "from 50 rows before the peak (at most 15 before)",
        "Means over 50 rows before it; the split at most 15 before it.",
    ),
    ("comes again before its signal was back in its band", "A change keeps the onset of the spell before."),
    ("within 10 rows of each other by the order", "Those within 10 rows of the earliest onset of all."),
)
"""(the words of the specification, the reading)."""
