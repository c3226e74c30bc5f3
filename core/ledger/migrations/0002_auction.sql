-- What the auction proves and who owes for it.

ALTER TABLE bid ADD COLUMN payment_low REAL NOT NULL DEFAULT 0; -- the least that c can truly be
ALTER TABLE bid ADD COLUMN gain REAL NOT NULL DEFAULT 0;        -- log(1/rho) of its next job
ALTER TABLE bid ADD COLUMN price REAL NOT NULL DEFAULT 0;       -- of that job's GPUs, in the same unit
ALTER TABLE bid ADD COLUMN slack_s REAL NOT NULL DEFAULT 0;
ALTER TABLE bid ADD COLUMN source TEXT NOT NULL DEFAULT '';     -- the weakest of its estimates

CREATE TABLE proof (                 -- of the newest rounds
  round INTEGER PRIMARY KEY REFERENCES round (id),
  proof BLOB NOT NULL                -- gzip of JSON auction.Proof
) STRICT;

CREATE TABLE debt (                  -- payments that could not be charged
  entity TEXT PRIMARY KEY,
  gpu_s  REAL NOT NULL,
  at     INTEGER NOT NULL            -- when it was so much; it decays
) STRICT;
