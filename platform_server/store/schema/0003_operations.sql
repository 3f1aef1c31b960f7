-- What takes time, as rows: operations, their steps, and which waits for which. Times are
-- microseconds since 1970 in UTC.

-- What may stand in `state`, and what follows what, says platform_server/operations/states.py.
-- `subject` is what it is done to, a node's id; NULL for one that only has parts.
-- It is looked at from `next_at` on; NULL means that another operation's end wakes it.
-- `fence` rises with each holder, and every write of a holder names its own.
CREATE TABLE operations (
    operation_id TEXT NOT NULL PRIMARY KEY,
    kind         TEXT NOT NULL,
    infra        TEXT NOT NULL DEFAULT 'default',
    subject      TEXT,
    parent_id    TEXT,
    state        TEXT NOT NULL,
    request      TEXT NOT NULL DEFAULT '{}',
    reason       TEXT,
    error_class  TEXT CHECK (error_class IN ('transient', 'permanent', 'needs-operator')),
    created_at   {int} NOT NULL,
    created_by   TEXT NOT NULL,
    updated_at   {int} NOT NULL,
    deadline_at  {int},
    next_at      {int},
    tries        {int} NOT NULL DEFAULT 0 CHECK (tries >= 0),
    ended_at     {int},
    holder       TEXT,
    fence        {int} NOT NULL DEFAULT 0 CHECK (fence >= 0),
    lease_until  {int} NOT NULL DEFAULT 0
) {strict};

CREATE INDEX operations_due ON operations (next_at) WHERE ended_at IS NULL;
CREATE INDEX operations_open_by_subject ON operations (subject) WHERE ended_at IS NULL;
CREATE INDEX operations_by_age ON operations (created_at, operation_id);
CREATE INDEX operations_by_parent ON operations (parent_id) WHERE parent_id IS NOT NULL;

-- Every change of state, with what is to be known of it later: the checkpoints.
CREATE TABLE operation_steps (
    operation_id TEXT NOT NULL,
    position     {int} NOT NULL,
    at           {int} NOT NULL,
    event        TEXT NOT NULL,
    state        TEXT NOT NULL,
    detail       TEXT NOT NULL DEFAULT '',
    output       TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (operation_id, position)
) {strict};

-- The first waits until the second has ended well.
CREATE TABLE operation_dependencies (
    operation_id TEXT NOT NULL,
    depends_on   TEXT NOT NULL,
    PRIMARY KEY (operation_id, depends_on)
) {strict};

CREATE INDEX operation_dependencies_by_former ON operation_dependencies (depends_on);
