"""Where the specification of the findings leaves a choice, and how both evaluators read it."""

AMBIGUITIES: tuple[tuple[str, str], ...] = (
    (
        "Known: logged in this row and finite.",
        "A clause is judged in the rows that know its first quantity; of the others the newest known values count. It"
        " is false where one of its parts is, and not judged where the rest of them is unknown.",
    ),
    (
        "A signal without a pair means `mismatch`; where it is absent `total`, else `staleness`.",
        "The first that the run has known. Engines read mismatch, else total: by the letter ppo_kl 0.06 alone would be"
        " `engine_mismatch`. chi2_token and ess_token read staleness too.",
    ),
    ("A guard means: not judged while it holds.", "Such rows count as false, by holds and by clearing alike."),
    (
        "not at its top: then `solved` (info).",
        "In rows at the top what stands as no_learning_signal is called `solved`; holds know nothing of the top.",
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
    ("Clear: an upper limit x 0.8.", "All limits of a clause, that of noise too, but not its guards."),
    (
        "An EMA against b counts beyond 4 s ...; a median of 5 against a median of 5 ...",
        "In every clause of that form, also where the table does not repeat `beyond noise`; not where only a level is"
        " asked for (entropy < 0.02 b, reference KL > 0.1).",
    ),
    ("s over 200 rows", "The newest 200 values, so 199 differences; d over the windows within them, so 181."),
    (
        "holds, EMAs and spikes start anew",
        "Means and medians of rows do not; a finding that stands goes on standing. The first 20 rows of a hold are"
        " those of the attempt, and falls of an earlier one are no harm of its spikes.",
    ),
    ("A changed configuration starts b anew", "All values of before are forgotten; what stands goes on standing."),
    (
        "peak: largest e15 from row 10 on",
        "From the 10th value of the average: after a restart the first are single rewards. No fall before it either.",
    ),
    ("e20 of 100 rows ago (of row 20 if younger)", "Rows of the attempt; not rising before row 21."),
    (
        "r_lo, r_hi of sequence rewards",
        "Weighted quantiles of the quantiles that a row logs; a row with fewer than 5 of them gives its mean.",
    ),
    (
        "at its top: r_hi from sequence rewards (or a logged maximum)",
        "The largest logged maximum so far. Not where r_hi = r_lo: rewards that are all 0 would be at their top.",
    ),
    ("rewards are seen to lie in [0, 1]", "All row means, and all of their quantiles that were logged, lie there."),
    ("mean of the newest 10 rows", "Of as many as there are."),
    ("lag", "engine_lag, else version_lag_mean; staleness kl_k3 has its own, staleness_lag. Unknown is 0."),
    ("entropy", "sampled_entropy where it is known, else the trainer's; the length is response_length_mean."),
    ("lag > 0 and a distance above 3 x A's level, 5 of 10", "The same distance in 5 rows; staleness kl_k3 is one."),
    ("the lag grew by one in 5 rows running", "By one or more: rows may be logged every few steps."),
    ("a known lag exceeds its usual", "The median of its newest 200."),
    ("router flips are known and high", "As moe_routing has it: > 1e-3 where replay is declared, or > 3 b."),
    (
        "median of rows 21 to 120",
        "Of known rows of the signal; from row 41 on, with as many as there are, and without those beyond 10 x the"
        " median of the ones before: an illness may have begun.",
    ),
    ("mean truncated share > 0.5", "Not where responses are known to be shorter than 32 tokens."),
    ("Shifted, other order", "By drift_spread below 0.4 kl_k2, or not; where one is unknown by sum abs(S_i)."),
    ("moe_routing beside engine_mismatch", "It stands only in rows after which engine_mismatch stands."),
    ("k3_excess with the e-value", "k3_excess > 1 and ln_e_value > 13.8, the limits of the rule of before."),
    ("n_zero_tail > 3 N/(1 - P0)", "P0 = (n_mu_zero - n_zero_tail)/(n_tokens - n_zero_tail) of the row."),
    ("with zeros, without", "Z > 0.002 U, or not; `no zeros` of support_shift likewise."),
    ("3 se of kl_k1", "sd(d)/sqrt(n) from kl_k2 and kl_k1; without kl_k2 the mean abs d in place of sd(d)."),
    ("4 se of ratio_mean over 20 rows", "s/sqrt(20) with the run's own noise."),
    (
        "Temperature: Pearson, ratio_mean",
        "Pearson of the row, ratio_mean over 20 rows; the present value is the newest 5-row mean.",
    ),
    (
        "abs(ppl_ratio - 1) > 0.01 beyond noise",
        "0.02 (healthy runs of kl_k3 0.005 reach 0.01), its EMA, by 4 s sqrt(alpha/(2 - alpha)), hold 5 of 10.",
    ),
    (
        "the others were finite in half of their rows before the first NaN",
        "They were numbers in 5 rows before it. `rewards=` and `advantages=`: all of a batch are none; no history.",
    ),
    (
        "the spikes only with fall or entropy off",
        "grad_norm only, needed to trip and not to stand; 3 of 20 counts spikes. The harm follows them.",
    ),
    (
        "rows with signal: grad_norm > 1e-3 of its peak",
        "Of the 90% quantile of its newest 200, as in no_learning_signal: a spike of 1000 blinds nothing.",
    ),
    (
        "rows before lr stopped rising left out",
        "All rows in which lr rises are: of the others rows 21 to 120, from row 41 on; they are not judged.",
    ),
    ("no end tokens at all", "0 in all of the newest 20 rows (10 at the start)."),
    ("without a share: the same mean length", "And without end tokens, which show that responses end."),
    ("cut_at_limit, change", "The mean of 20 rows > 0.2 and > 2 b, and the EMA above b beyond noise."),
    ("in 18 of the first 20 rows, later 45 of 50", "Each sign has its own count. No tokens: in 20 of 20."),
    (
        "the 5 around 100 rows earlier (rows 5 to 9 if younger)",
        "Values n - 102 to n - 98, or 5 to 9 counted from 0; known from 20 values on.",
    ),
    (
        "KL of a pair x2",
        "Of kl_k3, abs(kl_k1) and the mean abs log-ratio of the engines, kl_k3 and kl_k1 of the update: over the same"
        " two medians of 5 as the growth of lengths, as all companions.",
    ),
    ("No level is guarded.", "In entropy_explosion, where it stands; the level of entropy_collapse is guarded."),
    ("entropy < 0.02 b", "The average of 20 rows."),
    ("the mean of 20 rows < 0.8 x that of 50 rows before", "Against the 20 rows that ended 50 rows earlier."),
    ("up by half", "> 1.5 b."),
    (
        "variance_blowup, moderate_drift in one row",
        "moderate_drift: chi2_token > 0.3; variance_blowup: all else.",
    ),
    (
        "evaluation 20% (of its range so far) below its peak in 2 running",
        "And by 4 s of the evaluations: without it it fires in 26 of 60 healthy series of 150 rows, evaluated every"
        " 4 rows; with it in 0.",
    ),
    ("on the main evaluation: 3 running", "fall >= 0.5 of eval_reward (at least 10 evaluations) is reward_decline."),
    ("r at r_lo within noise for 50 rows", "mean of 50 rows - r_lo <= 4 s/sqrt(50), s of neighbouring rows."),
    ("duplicate prompts", "Left out: no signal. version_span: version_span_max > 1, which no series has."),
    (
        "onset of a level on means or sums",
        "By the row's own value against the level; of ratio_mean by the split of its distances from 1.",
    ),
    ("onset of a level of several parts", "By its first quantity alone."),
    ("running median of 3, back to the last row within", "Centred; the onset is the row after."),
    (
        "from 50 rows before the peak (at most 15 before)",
        "Means over 50 rows before it; the split at most 15 before it. Evaluations likewise.",
    ),
    ("comes again before its signal was back in its band", "A change keeps the onset of the spell before."),
    (
        "where reward_collapse stands only findings whose onset is at most 50 rows before its own lead",
        "And not_a_number and corrupt_logprobs, which are certain.",
    ),
    ("within 10 rows of each other by the order", "Those within 10 rows of the earliest onset of all."),
)
"""(the words of the specification, the reading)."""
