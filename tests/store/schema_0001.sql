-- The tables of 0.2.0 on PostgreSQL, from which migrations start.
CREATE TABLE project (
    name TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_project PRIMARY KEY (name)
);

CREATE TABLE run (
    id BIGSERIAL NOT NULL,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    owner TEXT,
    config TEXT NOT NULL,
    mode TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    last_step BIGINT,
    attempt_id BIGINT,
    archived BOOLEAN NOT NULL,
    ending TEXT,
    warnings TEXT,
    CONSTRAINT pk_run PRIMARY KEY (id),
    CONSTRAINT uq_run_project UNIQUE (project, name),
    CONSTRAINT fk_run_project FOREIGN KEY(project) REFERENCES project (name)
);

CREATE TABLE run_tag (
    run_id BIGINT NOT NULL,
    tag TEXT NOT NULL,
    CONSTRAINT pk_run_tag PRIMARY KEY (run_id, tag),
    CONSTRAINT fk_run_tag_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_run_tag_tag ON run_tag (tag);

CREATE TABLE attempt (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    world_size BIGINT NOT NULL,
    fork_of BIGINT,
    fork_reason TEXT,
    launch TEXT,
    ranks_unverified BOOLEAN NOT NULL,
    lake_batch_id BIGINT,
    CONSTRAINT pk_attempt PRIMARY KEY (id),
    CONSTRAINT uq_attempt_run_id UNIQUE (run_id, name),
    CONSTRAINT fk_attempt_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE TABLE claim (
    attempt_id BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    run_id BIGINT NOT NULL,
    launch TEXT NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    reported_at DOUBLE PRECISION,
    last_step BIGINT,
    ended BOOLEAN NOT NULL,
    began_at DOUBLE PRECISION,
    beat_at DOUBLE PRECISION,
    former_launch TEXT,
    former_step BIGINT,
    scalars_at DOUBLE PRECISION,
    CONSTRAINT pk_claim PRIMARY KEY (attempt_id, rank),
    CONSTRAINT fk_claim_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE,
    CONSTRAINT fk_claim_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_claim_run_id ON claim (run_id);

CREATE TABLE report (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    update_index BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    chunk BIGINT NOT NULL,
    received_at DOUBLE PRECISION NOT NULL,
    n_sequences INTEGER NOT NULL,
    n_tokens BIGINT NOT NULL,
    payload_bytes INTEGER NOT NULL,
    digest BYTEA NOT NULL,
    accepted BYTEA NOT NULL,
    payload BYTEA NOT NULL,
    CONSTRAINT pk_report PRIMARY KEY (id),
    CONSTRAINT uq_report_attempt_id UNIQUE (attempt_id, step, update_index, rank, chunk),
    CONSTRAINT fk_report_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE,
    CONSTRAINT fk_report_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE INDEX ix_report_run_id ON report (run_id, id, received_at, payload_bytes);

CREATE TABLE notice (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    attempt_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    launch TEXT NOT NULL,
    rank BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    received_at DOUBLE PRECISION NOT NULL,
    digest BYTEA NOT NULL,
    payload BYTEA NOT NULL,
    CONSTRAINT pk_notice PRIMARY KEY (id),
    CONSTRAINT uq_notice_attempt_id UNIQUE (attempt_id, launch, rank, sequence, kind),
    CONSTRAINT fk_notice_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE,
    CONSTRAINT fk_notice_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE INDEX ix_notice_run_id ON notice (run_id, id);

CREATE TABLE name_set (
    id BIGSERIAL NOT NULL,
    names TEXT NOT NULL,
    CONSTRAINT pk_name_set PRIMARY KEY (id),
    CONSTRAINT uq_name_set_names UNIQUE (names)
);

CREATE TABLE batch (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    update_index BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    closed_at DOUBLE PRECISION NOT NULL,
    n_sequences INTEGER NOT NULL,
    n_tokens BIGINT NOT NULL,
    n_ranks INTEGER NOT NULL,
    missing_ranks TEXT NOT NULL,
    complete BOOLEAN NOT NULL,
    revised BOOLEAN NOT NULL,
    mode TEXT NOT NULL,
    primary_pair TEXT NOT NULL,
    kl_is TEXT NOT NULL,
    policy_hash TEXT,
    mismatches INTEGER NOT NULL,
    last_report_id BIGINT NOT NULL,
    signal_names BIGINT NOT NULL,
    signals BYTEA NOT NULL,
    scalar_names BIGINT NOT NULL,
    scalars BYTEA NOT NULL,
    quarantined TEXT,
    unconfirmed BOOLEAN,
    CONSTRAINT pk_batch PRIMARY KEY (id),
    CONSTRAINT uq_batch_run_id UNIQUE (run_id, ordinal),
    CONSTRAINT uq_batch_attempt_id UNIQUE (attempt_id, step, update_index),
    CONSTRAINT fk_batch_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE,
    CONSTRAINT fk_batch_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE,
    CONSTRAINT fk_batch_signal_names FOREIGN KEY(signal_names) REFERENCES name_set (id),
    CONSTRAINT fk_batch_scalar_names FOREIGN KEY(scalar_names) REFERENCES name_set (id)
);

CREATE INDEX ix_batch_attempt_id ON batch (attempt_id, ordinal);

CREATE TABLE decision (
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    update_index BIGINT NOT NULL,
    policy_hash TEXT NOT NULL,
    policy_name TEXT NOT NULL,
    role TEXT NOT NULL,
    counts TEXT NOT NULL,
    mask_rate DOUBLE PRECISION,
    accepted BYTEA NOT NULL,
    CONSTRAINT pk_decision PRIMARY KEY (attempt_id, step, update_index, policy_hash),
    CONSTRAINT fk_decision_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE TABLE chunk_axes (
    attempt_id BIGINT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    last_ordinal BIGINT NOT NULL,
    first_step BIGINT NOT NULL,
    last_step BIGINT NOT NULL,
    axes BYTEA NOT NULL,
    CONSTRAINT pk_chunk_axes PRIMARY KEY (attempt_id, first_ordinal),
    CONSTRAINT fk_chunk_axes_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE TABLE signal_chunk (
    attempt_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    first_ordinal BIGINT NOT NULL,
    data BYTEA NOT NULL,
    CONSTRAINT pk_signal_chunk PRIMARY KEY (attempt_id, name, first_ordinal),
    CONSTRAINT fk_signal_chunk_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE TABLE policy_version (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    hash TEXT NOT NULL,
    policy TEXT NOT NULL,
    shadows TEXT NOT NULL,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    from_step BIGINT NOT NULL,
    pinned BOOLEAN NOT NULL,
    evidence TEXT NOT NULL,
    CONSTRAINT pk_policy_version PRIMARY KEY (id),
    CONSTRAINT fk_policy_version_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_policy_version_run_id ON policy_version (run_id, id);

CREATE TABLE adaptation (
    run_id BIGINT NOT NULL,
    setting TEXT NOT NULL,
    author TEXT NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_adaptation PRIMARY KEY (run_id),
    CONSTRAINT fk_adaptation_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE TABLE run_state (
    run_id BIGINT NOT NULL,
    report_id BIGINT NOT NULL,
    notice_id BIGINT NOT NULL,
    ordinal BIGINT,
    version INTEGER,
    state BYTEA,
    outlook TEXT,
    CONSTRAINT pk_run_state PRIMARY KEY (run_id),
    CONSTRAINT fk_run_state_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE TABLE run_summary (
    run_id BIGINT NOT NULL,
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    report_id BIGINT NOT NULL,
    notice_id BIGINT NOT NULL,
    version INTEGER NOT NULL,
    made_at DOUBLE PRECISION NOT NULL,
    document BYTEA NOT NULL,
    CONSTRAINT pk_run_summary PRIMARY KEY (run_id),
    CONSTRAINT fk_run_summary_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE TABLE lease (
    slot INTEGER NOT NULL,
    holder TEXT,
    fence BIGINT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_lease PRIMARY KEY (slot)
);

CREATE TABLE worker (
    holder TEXT NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_worker PRIMARY KEY (holder)
);

CREATE TABLE alert (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    identity TEXT NOT NULL,
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    update_index BIGINT NOT NULL,
    rule TEXT NOT NULL,
    severity TEXT NOT NULL,
    state TEXT NOT NULL,
    since_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    value DOUBLE PRECISION,
    threshold DOUBLE PRECISION,
    summary TEXT NOT NULL,
    labels TEXT NOT NULL,
    runbook TEXT NOT NULL,
    acked_by TEXT,
    acked_at DOUBLE PRECISION,
    ack_note TEXT,
    CONSTRAINT pk_alert PRIMARY KEY (id),
    CONSTRAINT uq_alert_identity UNIQUE (identity, attempt_id, step, update_index),
    CONSTRAINT fk_alert_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_alert_run_id ON alert (run_id, id);

CREATE TABLE alert_event (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    identity TEXT NOT NULL,
    attempt_id BIGINT NOT NULL,
    step BIGINT NOT NULL,
    update_index BIGINT NOT NULL,
    silence_started_at DOUBLE PRECISION NOT NULL,
    state TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    value DOUBLE PRECISION,
    threshold DOUBLE PRECISION,
    summary TEXT NOT NULL,
    CONSTRAINT pk_alert_event PRIMARY KEY (id),
    CONSTRAINT uq_alert_event_identity UNIQUE (identity, attempt_id, step, update_index, silence_started_at, state),
    CONSTRAINT fk_alert_event_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_alert_event_run_id ON alert_event (run_id);

CREATE TABLE delivery (
    id BIGSERIAL NOT NULL,
    receiver TEXT NOT NULL,
    dedup_key TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_at DOUBLE PRECISION NOT NULL,
    last_error TEXT,
    tried_at DOUBLE PRECISION,
    made_at DOUBLE PRECISION NOT NULL,
    run_id BIGINT,
    episode TEXT,
    told_state TEXT NOT NULL,
    rounds INTEGER NOT NULL,
    muted TEXT,
    CONSTRAINT pk_delivery PRIMARY KEY (id),
    CONSTRAINT uq_delivery_dedup_key UNIQUE (dedup_key),
    CONSTRAINT fk_delivery_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_delivery_run_id ON delivery (run_id, id);

CREATE INDEX ix_delivery_due ON delivery (state, due_at);

CREATE TABLE silence (
    id BIGSERIAL NOT NULL,
    project TEXT,
    matchers TEXT NOT NULL,
    author TEXT NOT NULL,
    note TEXT NOT NULL,
    starts_at DOUBLE PRECISION NOT NULL,
    ends_at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_silence PRIMARY KEY (id)
);

CREATE INDEX ix_silence_ends_at ON silence (ends_at);

CREATE TABLE event (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    CONSTRAINT pk_event PRIMARY KEY (id),
    CONSTRAINT fk_event_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_event_run_id ON event (run_id);

CREATE TABLE schema_compatibility (
    oldest_reader TEXT NOT NULL,
    CONSTRAINT pk_schema_compatibility PRIMARY KEY (oldest_reader)
);

CREATE TABLE lake_batch (
    id BIGINT NOT NULL,
    planned_at DOUBLE PRECISION NOT NULL,
    moved_at DOUBLE PRECISION,
    n_attempts INTEGER NOT NULL,
    n_reports BIGINT NOT NULL,
    n_bytes BIGINT NOT NULL,
    CONSTRAINT pk_lake_batch PRIMARY KEY (id)
);

CREATE TABLE lake_batch_attempt (
    lake_batch_id BIGINT NOT NULL,
    attempt_id BIGINT NOT NULL,
    run_id BIGINT NOT NULL,
    is_late BOOLEAN NOT NULL,
    after_report_id BIGINT NOT NULL,
    report_id BIGINT NOT NULL,
    after_notice_id BIGINT NOT NULL,
    notice_id BIGINT NOT NULL,
    CONSTRAINT pk_lake_batch_attempt PRIMARY KEY (lake_batch_id, attempt_id),
    CONSTRAINT fk_lake_batch_attempt_lake_batch_id FOREIGN KEY(lake_batch_id) REFERENCES lake_batch (id),
    CONSTRAINT fk_lake_batch_attempt_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE,
    CONSTRAINT fk_lake_batch_attempt_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_lake_batch_attempt_attempt_id ON lake_batch_attempt (attempt_id);

CREATE INDEX ix_lake_batch_attempt_run_id ON lake_batch_attempt (run_id);

CREATE TABLE lake_deletion (
    run_id BIGINT NOT NULL,
    project TEXT NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL,
    deleted_at DOUBLE PRECISION,
    CONSTRAINT pk_lake_deletion PRIMARY KEY (run_id)
);

CREATE TABLE token (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    scopes TEXT NOT NULL,
    project TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    last_used_at DOUBLE PRECISION,
    replaced_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    CONSTRAINT pk_token PRIMARY KEY (id),
    CONSTRAINT uq_token_digest UNIQUE (digest)
);

CREATE UNIQUE INDEX ix_token_name ON token (name) WHERE replaced_at IS NULL AND revoked_at IS NULL AND project IS NULL;

CREATE UNIQUE INDEX ix_token_project_name ON token (project, name) WHERE replaced_at IS NULL AND revoked_at IS NULL AND project IS NOT NULL;

CREATE TABLE quota (
    project TEXT NOT NULL,
    max_runs BIGINT,
    max_bytes BIGINT,
    reports_per_second DOUBLE PRECISION,
    CONSTRAINT pk_quota PRIMARY KEY (project)
);

CREATE TABLE audit (
    id BIGSERIAL NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    actor TEXT NOT NULL,
    token_id BIGINT,
    action TEXT NOT NULL,
    project TEXT,
    target TEXT NOT NULL,
    before TEXT,
    after TEXT,
    CONSTRAINT pk_audit PRIMARY KEY (id)
);

CREATE INDEX ix_audit_at ON audit (at);

CREATE INDEX ix_audit_project ON audit (project, id);

CREATE TABLE note (
    id BIGSERIAL NOT NULL,
    run_id BIGINT NOT NULL,
    step BIGINT,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_note PRIMARY KEY (id),
    CONSTRAINT fk_note_run_id FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);

CREATE INDEX ix_note_run_id ON note (run_id, id);

CREATE TABLE database_identity (
    id TEXT NOT NULL,
    CONSTRAINT pk_database_identity PRIMARY KEY (id)
);

INSERT INTO database_identity (id) VALUES ('00000000-0000-0000-0000-000000000000');

ALTER TABLE report ALTER COLUMN payload SET STORAGE EXTERNAL;

ALTER TABLE chunk_axes ALTER COLUMN axes SET STORAGE EXTERNAL;

ALTER TABLE signal_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO alembic_version (version_num) VALUES ('0001');

INSERT INTO schema_compatibility (oldest_reader) VALUES ('0001');
