-- S by placement level relative to the slot, as a user's jobs of one model showed it.

CREATE TABLE place (
  user    TEXT NOT NULL,
  model   TEXT NOT NULL,
  factors TEXT NOT NULL,             -- JSON arbiter.Factors
  PRIMARY KEY (user, model)
) STRICT, WITHOUT ROWID;
