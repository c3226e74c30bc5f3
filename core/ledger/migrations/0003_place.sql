-- S by placement level, and speed by GPU type, as a user's jobs of one model showed them.

CREATE TABLE place (
  user     TEXT NOT NULL,
  model    TEXT NOT NULL,
  measured TEXT NOT NULL,            -- JSON arbiter.Measured
  PRIMARY KEY (user, model)
) STRICT, WITHOUT ROWID;
