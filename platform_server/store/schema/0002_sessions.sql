-- Sessions of agents that dial out, what heartbeats tell, orders, renewals, several engines, the
-- mesh. Times are microseconds since 1970 in UTC.

-- A certificate handed in for renewal stands beside the present one until it was seen in use.
ALTER TABLE nodes ADD COLUMN next_certificate_pem TEXT;
ALTER TABLE nodes ADD COLUMN next_certificate_sha256 TEXT;
ALTER TABLE nodes ADD COLUMN next_pin TEXT;
ALTER TABLE nodes ADD COLUMN next_since {int};
-- The one before the present: whoever still opens with it is a copy, or was set back, and is told.
ALTER TABLE nodes ADD COLUMN former_certificate_pem TEXT;
ALTER TABLE nodes ADD COLUMN former_pin TEXT;
-- The epoch in which a generation that ran ahead of a restored store was adopted, once.
ALTER TABLE nodes ADD COLUMN adopted_epoch {int} NOT NULL DEFAULT 0;

CREATE INDEX nodes_by_next_pin ON nodes (next_pin) WHERE next_pin IS NOT NULL;

-- Every engine that runs; one that has not said so for a while is gone, and its sessions with it.
CREATE TABLE engines (
    engine_id  TEXT NOT NULL PRIMARY KEY,
    started_at {int} NOT NULL,
    seen_at    {int} NOT NULL
) {strict};

-- One open session a node at most, on whichever engine. One whose link has ended stays with the
-- moment at which it was last heard, until the node is back or is written down as unreachable.
CREATE TABLE sessions (
    node_id    TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    engine_id  TEXT NOT NULL,
    address    TEXT NOT NULL,
    instance   TEXT NOT NULL,
    generation {int} NOT NULL,
    started_at {int} NOT NULL,
    lost_at    {int}
) {strict};

CREATE INDEX sessions_by_engine ON sessions (engine_id);
CREATE INDEX sessions_lost ON sessions (lost_at) WHERE lost_at IS NOT NULL;

-- The last heartbeat of each node: apart from the node's row, since it is written all the time.
CREATE TABLE heartbeats (
    node_id   TEXT NOT NULL PRIMARY KEY,
    at        {int} NOT NULL,
    heartbeat TEXT NOT NULL
) {strict};

-- Where a node's identity was used by somebody who is not the node that runs.
CREATE TABLE identity_conflicts (
    node_id  TEXT NOT NULL,
    address  TEXT NOT NULL,
    first_at {int} NOT NULL,
    last_at  {int} NOT NULL,
    count    {int} NOT NULL DEFAULT 1 CHECK (count >= 1),
    PRIMARY KEY (node_id, address)
) {strict};

-- The addresses that each engine has published; `place` is where an engine runs, whatever its run.
CREATE TABLE published_addresses (
    place   TEXT NOT NULL,
    purpose TEXT NOT NULL CHECK (purpose IN ('enrollment', 'gateway')),
    url     TEXT NOT NULL,
    rank    {int} NOT NULL,
    seen_at {int} NOT NULL,
    PRIMARY KEY (place, purpose, url)
) {strict};

-- Signed orders, kept until the node has answered or their time is over.
CREATE TABLE orders (
    order_id   TEXT NOT NULL PRIMARY KEY,
    node_id    TEXT NOT NULL,
    infra      TEXT NOT NULL DEFAULT 'default',
    epoch      {int} NOT NULL,
    sequence   {int} NOT NULL,
    kind       TEXT NOT NULL,
    content    TEXT NOT NULL DEFAULT '{}',
    signed     {blob} NOT NULL,
    signatures TEXT NOT NULL,
    state      TEXT NOT NULL
        CHECK (state IN ('queued', 'accepted', 'done', 'failed', 'expired', 'cancelled')),
    purpose    TEXT,
    created_at {int} NOT NULL,
    created_by TEXT NOT NULL,
    expires_at {int} NOT NULL,
    tries      {int} NOT NULL DEFAULT 0,
    accepted_at {int},
    ended_at   {int},
    detail     TEXT,
    UNIQUE (node_id, epoch, sequence)
) {strict};

CREATE INDEX orders_open ON orders (node_id, sequence) WHERE state IN ('queued', 'accepted');
CREATE INDEX orders_by_age ON orders (created_at, order_id);

-- The mesh: each member's WireGuard key and the address it was given.
CREATE TABLE mesh_members (
    node_id      TEXT NOT NULL PRIMARY KEY,
    public_key   TEXT NOT NULL UNIQUE,
    address      TEXT NOT NULL UNIQUE,
    handshake_at {int},
    state        TEXT NOT NULL DEFAULT 'waiting',
    reason       TEXT,
    updated_at   {int} NOT NULL
) {strict};

CREATE INDEX mesh_members_by_change ON mesh_members (updated_at);
