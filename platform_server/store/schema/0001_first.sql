-- The first schema. {int}, {blob}, {identity} and {strict} are filled in for each database.
-- Times are microseconds since 1970 in UTC. Truth is 0 or 1. JSON stands in TEXT.
-- `infra` is the scope that every list an operator sees can be narrowed to.

CREATE TABLE enrollments (
    enrollment_id TEXT NOT NULL PRIMARY KEY,
    node_id       TEXT NOT NULL,
    infra         TEXT NOT NULL DEFAULT 'default',
    state         TEXT NOT NULL
        CHECK (state IN ('pending', 'consumed', 'replaced', 'revoked', 'expired')),
    token_hash    {blob} NOT NULL,
    sources       TEXT NOT NULL DEFAULT '[]',
    labels        TEXT NOT NULL DEFAULT '{}',
    reenroll      {int} NOT NULL DEFAULT 0 CHECK (reenroll IN (0, 1)),
    created_at    {int} NOT NULL,
    created_by    TEXT NOT NULL,
    expires_at    {int} NOT NULL,
    consumed_at   {int},
    consumed_pin  TEXT,
    ended_at      {int},
    CHECK ((state = 'consumed') = (consumed_pin IS NOT NULL AND consumed_at IS NOT NULL))
) {strict};

-- One unused enrollment a node id, whoever issues at the same moment.
CREATE UNIQUE INDEX enrollments_one_pending ON enrollments (node_id) WHERE state = 'pending';
CREATE INDEX enrollments_by_node ON enrollments (node_id, created_at);
CREATE INDEX enrollments_pending_by_expiry ON enrollments (expires_at) WHERE state = 'pending';
CREATE INDEX enrollments_by_age ON enrollments (created_at, enrollment_id);

CREATE TABLE nodes (
    node_id            TEXT NOT NULL PRIMARY KEY,
    infra              TEXT NOT NULL DEFAULT 'default',
    state              TEXT NOT NULL
        CHECK (state IN ('enrolled', 'ready', 'unreachable', 'needs-operator', 'removed')),
    scheduling         TEXT NOT NULL DEFAULT 'active'
        CHECK (scheduling IN ('active', 'maintenance', 'draining', 'drained', 'fenced')),
    connectivity       TEXT NOT NULL CHECK (connectivity IN ('listen', 'dial-out')),
    certificate_pem    TEXT NOT NULL,
    certificate_sha256 TEXT NOT NULL,
    pin                TEXT NOT NULL,
    generation         {int} NOT NULL DEFAULT 1 CHECK (generation >= 0),
    version            TEXT NOT NULL,
    url                TEXT,
    labels             TEXT NOT NULL DEFAULT '{}',
    reported_labels    TEXT NOT NULL DEFAULT '{}',
    roles              TEXT NOT NULL DEFAULT '[]',
    capacity           TEXT NOT NULL DEFAULT '{}',
    enrollment_id      TEXT NOT NULL,
    enrolled_at        {int} NOT NULL,
    first_ready_at     {int},
    last_seen_at       {int},
    probe_answered_at  {int},
    clock_offset_ms    {int},
    reason             TEXT,
    removed_at         {int},
    provider_state     TEXT,
    CHECK ((state = 'removed') = (removed_at IS NOT NULL))
) {strict};

CREATE INDEX nodes_by_pin ON nodes (pin);

CREATE TABLE trust_keys (
    key_id          TEXT NOT NULL PRIMARY KEY,
    public_key      {blob} NOT NULL,
    sealed_private  {blob} NOT NULL,
    not_before      {int} NOT NULL,
    not_after       {int} NOT NULL,
    certificate_pem TEXT NOT NULL,
    created_at      {int} NOT NULL,
    CHECK (not_before < not_after)
) {strict};

CREATE TABLE trust_statements (
    epoch        {int} NOT NULL,
    serial       {int} NOT NULL,
    statement    {blob} NOT NULL,
    signatures   TEXT NOT NULL,
    changes_keys {int} NOT NULL CHECK (changes_keys IN (0, 1)),
    issued_at    {int} NOT NULL,
    PRIMARY KEY (epoch, serial)
) {strict};

CREATE INDEX trust_statements_that_changed_keys
    ON trust_statements (epoch, serial) WHERE changes_keys = 1;

-- Sealed values by name: the listener's key, the check value of the master key.
CREATE TABLE sealed_secrets (
    name       TEXT NOT NULL PRIMARY KEY,
    sealed     {blob} NOT NULL,
    kek_id     TEXT NOT NULL,
    updated_at {int} NOT NULL
) {strict};

CREATE TABLE platform_values (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) {strict};

-- The capped log of enrollment attempts: never a token, a certificate or an address.
CREATE TABLE enrollment_attempts (
    attempt_id {identity},
    outcome    TEXT NOT NULL
        CHECK (outcome IN ('enrolled', 'refused', 'worker-newer', 'node-exists', 'invalid')),
    reason     TEXT NOT NULL,
    node_id    TEXT,
    version    TEXT,
    count      {int} NOT NULL DEFAULT 1 CHECK (count >= 1),
    first_at   {int} NOT NULL,
    last_at    {int} NOT NULL,
    infra      TEXT NOT NULL DEFAULT 'default'
) {strict};

CREATE INDEX enrollment_attempts_by_age ON enrollment_attempts (last_at, attempt_id);
CREATE INDEX enrollment_attempts_by_reason ON enrollment_attempts (outcome, reason, node_id);

-- Append-only and hash-chained; `seq` has no gaps and is chosen under the append lock.
CREATE TABLE action_log (
    seq           {int} NOT NULL PRIMARY KEY,
    at            {int} NOT NULL,
    actor         TEXT NOT NULL,
    action        TEXT NOT NULL,
    target        TEXT NOT NULL,
    operation     TEXT,
    infra         TEXT NOT NULL DEFAULT 'default',
    environment   TEXT NOT NULL,
    mfa_verified  {int} NOT NULL DEFAULT 0 CHECK (mfa_verified IN (0, 1)),
    details       TEXT NOT NULL DEFAULT '{}',
    previous_hash {blob} NOT NULL,
    hash          {blob} NOT NULL
) {strict};

CREATE INDEX action_log_by_time ON action_log (at);

CREATE TABLE events (
    seq     {int} NOT NULL PRIMARY KEY,
    at      {int} NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    infra   TEXT NOT NULL DEFAULT 'default',
    data    TEXT NOT NULL DEFAULT '{}'
) {strict};

CREATE TABLE api_tokens (
    token_id     TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    token_hash   {blob} NOT NULL,
    permissions  TEXT NOT NULL DEFAULT '[]',
    infra        TEXT NOT NULL DEFAULT 'default',
    created_at   {int} NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   {int},
    revoked_at   {int},
    last_used_at {int}
) {strict};

CREATE TABLE idempotency (
    principal  TEXT NOT NULL,
    key        TEXT NOT NULL,
    route      TEXT NOT NULL,
    body_hash  {blob} NOT NULL,
    status     {int} NOT NULL,
    answer     TEXT NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (principal, key)
) {strict};

CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- A row stays after its release, so that `fence` only ever rises.
CREATE TABLE leases (
    name       TEXT NOT NULL PRIMARY KEY,
    holder     TEXT NOT NULL,
    fence      {int} NOT NULL CHECK (fence >= 1),
    expires_at {int} NOT NULL
) {strict};

-- Failures of one bucket (an address, a token id) in one window, shared by all engines.
CREATE TABLE failure_counters (
    bucket       TEXT NOT NULL,
    window_start {int} NOT NULL,
    count        {int} NOT NULL CHECK (count >= 0),
    PRIMARY KEY (bucket, window_start)
) {strict};

CREATE INDEX failure_counters_by_age ON failure_counters (window_start);

-- Public certificates of the listeners; their keys stand in sealed_secrets.
CREATE TABLE certificates (
    name            TEXT NOT NULL PRIMARY KEY,
    certificate_pem TEXT NOT NULL,
    names           TEXT NOT NULL DEFAULT '[]',
    not_after       {int} NOT NULL,
    updated_at      {int} NOT NULL
) {strict};
