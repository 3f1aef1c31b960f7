-- Machines from providers, what they cost, and what is known of them. Times are microseconds since
-- 1970 in UTC, money is millionths of the currency's unit, JSON is text.

-- One credential at one provider. `sealed` is never read but to open a driver; NULL for `local` and
-- for identities that need no secret. `consent` is what may be spent through it, NULL for nothing.
CREATE TABLE cloud_connections (
    connection_id     TEXT NOT NULL PRIMARY KEY,
    name              TEXT NOT NULL UNIQUE,
    infra             TEXT NOT NULL DEFAULT 'default',
    provider          TEXT NOT NULL,
    settings          TEXT NOT NULL DEFAULT '{}',
    credential_kind   TEXT NOT NULL,
    credential_at     {int} NOT NULL,
    sealed            {blob},
    kek_id            TEXT,
    external_id       TEXT,
    account           TEXT NOT NULL DEFAULT '',
    principal         TEXT NOT NULL DEFAULT '',
    paused_at         {int},
    paused_reason     TEXT,
    paused_topic      TEXT,
    probe_at          {int},
    checked_at        {int},
    checked           TEXT NOT NULL DEFAULT '{}',
    consent           TEXT,
    offer             TEXT NOT NULL DEFAULT '{}',
    offer_at          {int},
    refreshed_at      {int},
    created_at        {int} NOT NULL,
    created_by        TEXT NOT NULL
) {strict};

-- One ordered machine, from the order to its confirmed end. It counts in the caps and in the bill
-- until `gone_at` or `forgotten_at` stands. `provider_ref` is the provider's id once it is known.
-- `seen` is the provider's own view of it as of `seen_at`; `missed` counts looks in a row that did
-- not find it, `looked_at` is the last of any. `running_at`: when it was first seen to run.
CREATE TABLE cloud_machines (
    machine_id     TEXT NOT NULL PRIMARY KEY,
    node_id        TEXT NOT NULL,
    infra          TEXT NOT NULL DEFAULT 'default',
    connection_id  TEXT NOT NULL,
    provider       TEXT NOT NULL,
    operation_id   TEXT NOT NULL,
    region         TEXT NOT NULL,
    size           TEXT NOT NULL,
    image          TEXT NOT NULL,
    role           TEXT NOT NULL DEFAULT 'general',
    wish           TEXT NOT NULL DEFAULT '{}',
    template       TEXT NOT NULL,
    provider_ref   TEXT,
    provider_name  TEXT,
    power          TEXT NOT NULL DEFAULT 'unknown',
    seen           TEXT NOT NULL DEFAULT '{}',
    seen_at        {int},
    looked_at      {int},
    hourly_micros  {int},
    currency       TEXT NOT NULL DEFAULT '',
    price_as_of    TEXT,
    ordered_at     {int} NOT NULL,
    ordered_by     TEXT NOT NULL,
    present_at     {int},
    running_at     {int},
    active_at      {int},
    missed         {int} NOT NULL DEFAULT 0,
    missed_at      {int},
    delete_asked_at {int},
    delete_asked_by TEXT,
    keep_machine   {int} NOT NULL DEFAULT 0 CHECK (keep_machine IN (0, 1)),
    delete_sent_at {int},
    gone_at        {int},
    forgotten_at   {int},
    forgotten_by   TEXT
) {strict};

CREATE UNIQUE INDEX cloud_machines_by_node ON cloud_machines (node_id)
    WHERE gone_at IS NULL AND forgotten_at IS NULL;
CREATE INDEX cloud_machines_by_operation ON cloud_machines (operation_id);
CREATE INDEX cloud_machines_by_connection ON cloud_machines (connection_id)
    WHERE gone_at IS NULL AND forgotten_at IS NULL;

-- Written and committed before the provider is called. `request` is the exact order without its
-- first-boot data, which is sealed: it holds a ticket. `outcome` is NULL while nobody knows.
-- `doubted_at`: since when nobody knows whether it was done.
CREATE TABLE cloud_attempts (
    operation_id   TEXT NOT NULL,
    attempt        {int} NOT NULL,
    machine_id     TEXT NOT NULL,
    name           TEXT NOT NULL,
    client_token   TEXT NOT NULL,
    request        TEXT NOT NULL,
    request_sha256 {blob} NOT NULL,
    first_boot     {blob},
    kek_id         TEXT,
    enrollment_id  TEXT,
    state          TEXT NOT NULL CHECK (state IN ('written', 'sent', 'present', 'absent', 'gone')),
    outcome        TEXT,
    topic          TEXT,
    code           TEXT,
    reason         TEXT,
    provider_ref   TEXT,
    progress       TEXT,
    clean_answers  {int} NOT NULL DEFAULT 0,
    looked_up_at   {int},
    written_at     {int} NOT NULL,
    sent_at        {int},
    doubted_at     {int},
    settled_at     {int},
    PRIMARY KEY (operation_id, attempt)
) {strict};

CREATE INDEX cloud_attempts_by_enrollment ON cloud_attempts (enrollment_id)
    WHERE enrollment_id IS NOT NULL;
CREATE INDEX cloud_attempts_by_machine ON cloud_attempts (machine_id);

-- What hangs on a machine, or is kept beside machines: disks, interfaces, security groups, volumes,
-- snapshots, stable addresses. `keep` goes with no machine. `operation_id` made it. Of one that we
-- make ourselves `sent_at` is committed before its provider is asked; without `provider_ref` it is in
-- doubt from then on, and so many `clean_answers` have not shown it.
CREATE TABLE cloud_children (
    child_id       TEXT NOT NULL PRIMARY KEY,
    connection_id  TEXT NOT NULL,
    infra          TEXT NOT NULL DEFAULT 'default',
    kind           TEXT NOT NULL,
    provider_ref   TEXT,
    name           TEXT NOT NULL,
    labels         TEXT NOT NULL DEFAULT '{}',
    region         TEXT NOT NULL DEFAULT '',
    machine_id     TEXT,
    operation_id   TEXT NOT NULL,
    keep           {int} NOT NULL DEFAULT 0 CHECK (keep IN (0, 1)),
    address        TEXT,
    size_gigabytes {int},
    hourly_micros  {int},
    currency       TEXT NOT NULL DEFAULT '',
    written_at     {int} NOT NULL,
    sent_at        {int},
    clean_answers  {int} NOT NULL DEFAULT 0,
    present_at     {int},
    delete_asked_at {int},
    gone_at        {int}
) {strict};

CREATE UNIQUE INDEX cloud_children_by_ref ON cloud_children (connection_id, kind, provider_ref)
    WHERE provider_ref IS NOT NULL AND gone_at IS NULL;
CREATE INDEX cloud_children_by_machine ON cloud_children (machine_id) WHERE gone_at IS NULL;

-- What first boot told, in order; bounded by whoever writes.
CREATE TABLE boot_phases (
    operation_id TEXT NOT NULL,
    position     {int} NOT NULL,
    at           {int} NOT NULL,
    phase        TEXT NOT NULL,
    detail       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (operation_id, position)
) {strict};

-- What something cost from when to when at which price; the running total is their sum.
CREATE TABLE cloud_charges (
    subject_id    TEXT NOT NULL,
    since         {int} NOT NULL,
    until         {int},
    connection_id TEXT NOT NULL,
    infra         TEXT NOT NULL DEFAULT 'default',
    hourly_micros {int} NOT NULL,
    currency      TEXT NOT NULL,
    what          TEXT NOT NULL,
    PRIMARY KEY (subject_id, since)
) {strict};

CREATE INDEX cloud_charges_open ON cloud_charges (connection_id) WHERE until IS NULL;

-- How often in a row machines of one template failed; `opened_at` stops further orders of it.
CREATE TABLE cloud_breakers (
    template   TEXT NOT NULL PRIMARY KEY,
    failures   {int} NOT NULL DEFAULT 0,
    opened_at  {int},
    reason     TEXT NOT NULL DEFAULT '',
    updated_at {int} NOT NULL
) {strict};

-- What carries our installation's id at a provider and belongs to nothing that we know.
CREATE TABLE cloud_orphans (
    connection_id TEXT NOT NULL,
    kind          TEXT NOT NULL,
    provider_ref  TEXT NOT NULL,
    infra         TEXT NOT NULL DEFAULT 'default',
    name          TEXT NOT NULL,
    region        TEXT NOT NULL DEFAULT '',
    operation_id  TEXT NOT NULL DEFAULT '',
    hourly_micros {int},
    currency      TEXT NOT NULL DEFAULT '',
    made_at       {int},
    first_seen_at {int} NOT NULL,
    last_seen_at  {int} NOT NULL,
    delete_asked_at {int},
    gone_at       {int},
    PRIMARY KEY (connection_id, kind, provider_ref)
) {strict};

-- The keys of our own OIDC issuer, sealed, with the time in which each is published and signs.
CREATE TABLE issuer_keys (
    key_id       TEXT NOT NULL PRIMARY KEY,
    algorithm    TEXT NOT NULL,
    public_jwk   TEXT NOT NULL,
    sealed       {blob} NOT NULL,
    kek_id       TEXT NOT NULL,
    created_at   {int} NOT NULL,
    signs_from   {int} NOT NULL,
    signs_until  {int} NOT NULL,
    shown_until  {int} NOT NULL
) {strict};

-- What an open operation waits for that does not come, and since when; NULL while all goes well.
ALTER TABLE operations ADD COLUMN waiting TEXT;
ALTER TABLE operations ADD COLUMN waiting_since {int};
