-- Times are microseconds since the epoch, NULL when they have not come;
-- durations are seconds; work is GPU-seconds. JSON columns hold the named Go
-- value of package arbiter, cluster or fairness.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE app (
  id        TEXT PRIMARY KEY,
  entity    TEXT NOT NULL,
  user      TEXT NOT NULL,
  weight    REAL NOT NULL,
  ord       INTEGER NOT NULL,
  submit    INTEGER NOT NULL,
  reference INTEGER,
  ended     INTEGER,
  rho       REAL NOT NULL,
  work      REAL NOT NULL,
  fluid     TEXT NOT NULL            -- JSON fairness.FluidApp
) STRICT;

CREATE TABLE job (
  id             TEXT PRIMARY KEY,
  app            TEXT NOT NULL,      -- '' while the host holds it back
  uid            INTEGER NOT NULL,
  name           TEXT NOT NULL,
  gpus           INTEGER NOT NULL,
  submit         INTEGER NOT NULL,
  ended          INTEGER,
  outcome        TEXT NOT NULL,
  estimate_s     REAL NOT NULL,      -- now
  source         TEXT NOT NULL,
  first_s        REAL NOT NULL,      -- when it arrived
  first_source   TEXT NOT NULL,
  attained_s     REAL NOT NULL,      -- run time at S = 1
  error          REAL,               -- first_s / attained_s of a completed job
  done           INTEGER NOT NULL,
  saved          TEXT NOT NULL       -- JSON arbiter.SavedJob
) STRICT;
CREATE INDEX job_app ON job (app);
CREATE INDEX job_done ON job (done, ended);

CREATE TABLE estimate (              -- every estimate a job ever had
  job     TEXT NOT NULL,
  at      INTEGER NOT NULL,
  total_s REAL NOT NULL,
  source  TEXT NOT NULL
) STRICT;
CREATE INDEX estimate_job ON estimate (job, at);

CREATE TABLE rho (                   -- rho over time
  app TEXT NOT NULL,
  at  INTEGER NOT NULL,
  rho REAL NOT NULL
) STRICT;
CREATE INDEX rho_app ON rho (app, at);

CREATE TABLE round (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  free    INTEGER NOT NULL,
  apps    INTEGER NOT NULL,
  welfare REAL NOT NULL,             -- sum of log(1/rho) over the participants
  bound   REAL NOT NULL,
  exact   INTEGER NOT NULL,
  took_us INTEGER NOT NULL
) STRICT;

CREATE TABLE bid (
  round       INTEGER NOT NULL REFERENCES round (id),
  app         TEXT NOT NULL,
  participant INTEGER NOT NULL,
  rho         REAL NOT NULL,
  rho_after   REAL NOT NULL,
  wanted      INTEGER NOT NULL,
  won         INTEGER NOT NULL,
  payment     REAL NOT NULL,         -- share of a full lease that was left; 0: won nothing
  places      TEXT NOT NULL,         -- JSON []cluster.Share
  PRIMARY KEY (round, app)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
  id       INTEGER PRIMARY KEY,
  job      TEXT NOT NULL,
  app      TEXT NOT NULL,
  round    INTEGER NOT NULL,         -- 0: adopted
  state    TEXT NOT NULL,
  places   TEXT NOT NULL,            -- JSON []cluster.Share
  length_s REAL NOT NULL,
  granted  INTEGER NOT NULL,
  started  INTEGER,
  expires  INTEGER,
  deadline INTEGER,
  ended    INTEGER,
  renewals INTEGER NOT NULL,
  anywhere INTEGER NOT NULL,
  warned   TEXT NOT NULL,
  reason   TEXT NOT NULL
) STRICT;
CREATE INDEX lease_live ON lease (id) WHERE state <> 'over';
CREATE INDEX lease_job ON lease (job);

-- One row per GPU under a granted, held or ending lease. The primary key is
-- the promise that no GPU is ever under two.
CREATE TABLE lease_gpu (
  node  TEXT NOT NULL,
  gpu   INTEGER NOT NULL,            -- number on the node, ours
  lease INTEGER NOT NULL REFERENCES lease (id),
  PRIMARY KEY (node, gpu)
) STRICT, WITHOUT ROWID;
CREATE INDEX lease_gpu_lease ON lease_gpu (lease);
