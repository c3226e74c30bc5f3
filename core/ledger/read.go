// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"themis/core/arbiter"
)

// Load returns what an arbiter needs to go on, and the finished runs that
// estimates of like jobs use, oldest first.
func (l *Ledger) Load(now time.Time) (arbiter.Saved, []arbiter.SavedJob, error) {
	s, past, err := l.load(now)
	if err != nil {
		return s, nil, fmt.Errorf("read ledger %s: %w", l.path, err)
	}
	return s, past, nil
}

func (l *Ledger) load(now time.Time) (s arbiter.Saved, past []arbiter.SavedJob, err error) {
	var ids string
	var fluid sql.NullInt64
	row := l.db.QueryRow("SELECT (SELECT value FROM meta WHERE key='ids'), (SELECT CAST(value AS INTEGER) FROM meta WHERE key='fluid')")
	var idsNull sql.NullString
	if err = row.Scan(&idsNull, &fluid); err != nil {
		return s, nil, err
	}
	if ids = idsNull.String; ids != "" {
		if err = json.Unmarshal([]byte(ids), &s.IDs); err != nil {
			return s, nil, err
		}
	}
	s.Fluid = fromMicros(fluid)
	if s.Jobs, err = l.jobs("SELECT saved FROM job WHERE done = 0 OR ended > ? ORDER BY submit, id", micros(now.Add(-keepEnded))); err != nil {
		return s, nil, err
	}
	if past, err = l.jobs("SELECT saved FROM (SELECT saved, ended FROM job WHERE done = 1 AND outcome = 'completed' ORDER BY ended DESC LIMIT 5000) ORDER BY ended"); err != nil {
		return s, nil, err
	}
	if s.Leases, err = l.leases("WHERE state <> 'over' ORDER BY id"); err != nil {
		return s, nil, err
	}
	if s.Debts, err = l.debts(); err != nil {
		return s, nil, err
	}
	if s.Places, err = l.places(); err != nil {
		return s, nil, err
	}
	last, err := l.Rounds(1)
	if err != nil {
		return s, nil, err
	}
	if len(last) > 0 {
		s.Last = &last[0].Round
	}
	needed := map[string]bool{}
	for _, j := range s.Jobs {
		needed[j.App] = true
	}
	s.Apps, err = l.apps(needed)
	return s, past, err
}

func (l *Ledger) jobs(query string, args ...any) ([]arbiter.SavedJob, error) {
	return collect(l.db, func(rows *sql.Rows) (j arbiter.SavedJob, err error) {
		var saved string
		if err = rows.Scan(&saved); err == nil {
			err = json.Unmarshal([]byte(saved), &j)
		}
		return j, err
	}, query, args...)
}

func (l *Ledger) apps(needed map[string]bool) ([]arbiter.SavedApp, error) {
	all, err := collect(l.db, func(rows *sql.Rows) (s arbiter.SavedApp, err error) {
		var fluid string
		var submit, reference, ended sql.NullInt64
		a := &s.App
		if err = rows.Scan(&a.ID, &a.Entity, &a.User, &a.Weight, &a.Order, &submit, &reference, &ended, &a.Rho, &s.Work, &fluid); err != nil {
			return s, err
		}
		a.Submit, a.Reference, a.Ended = fromMicros(submit), fromMicros(reference), fromMicros(ended)
		var sh shadow
		err = json.Unmarshal([]byte(fluid), &sh)
		s.Fluid, a.Crowd, a.Gone = sh.FluidApp, sh.Crowd, sh.Gone
		return s, err
	}, "SELECT * FROM app ORDER BY ord")
	var out []arbiter.SavedApp
	for _, s := range all {
		if needed[s.App.ID] {
			out = append(out, s)
		}
	}
	return out, err
}

func (l *Ledger) leases(where string, args ...any) ([]arbiter.Lease, error) {
	return collect(l.db, func(rows *sql.Rows) (x arbiter.Lease, err error) {
		var places, state string
		var length float64
		var granted, started, expires, deadline, ended sql.NullInt64
		if err = rows.Scan(&x.ID, &x.Job, &x.App, &x.Round, &state, &places, &length, &granted, &started, &expires,
			&deadline, &ended, &x.Renewals, &x.Anywhere, &x.Warned, &x.Reason); err != nil {
			return x, err
		}
		x.State, x.Length = arbiter.LeaseState(state), time.Duration(length*float64(time.Second))
		x.Granted, x.Started, x.Expires = fromMicros(granted), fromMicros(started), fromMicros(expires)
		x.Deadline, x.Ended = fromMicros(deadline), fromMicros(ended)
		err = json.Unmarshal([]byte(places), &x.On)
		return x, err
	}, "SELECT * FROM lease "+where, args...)
}

// Leases returns the newest leases, live or over, newest first.
func (l *Ledger) Leases(limit int) ([]arbiter.Lease, error) {
	return l.leases("ORDER BY id DESC LIMIT ?", limit)
}

// Past is a job that has ended, with all its leases.
type Past struct {
	arbiter.SavedJob
	Leases []arbiter.Lease
}

// Past returns the jobs that ended last, the newest first; or the one that job names.
// owner, unless nil, is whose jobs to look at.
func (l *Ledger) Past(job string, limit int, owner *uint32) ([]Past, error) {
	query, args := "SELECT saved FROM job WHERE done = 1", []any{}
	if job != "" {
		query, args = query+" AND id = ?", append(args, job)
	}
	if owner != nil {
		query, args = query+" AND uid = ?", append(args, *owner)
	}
	jobs, err := l.jobs(query+" ORDER BY ended DESC LIMIT ?", append(args, limit)...)
	out := make([]Past, len(jobs))
	for i := range jobs {
		if out[i].SavedJob = jobs[i]; err == nil {
			out[i].Leases, err = l.leases("WHERE job = ? ORDER BY id", jobs[i].Job.ID)
		}
	}
	return out, err
}

// StoredRound is a round with how long it took to decide.
type StoredRound struct {
	arbiter.Round
	Took time.Duration
}

// Rounds returns the newest rounds with their bids, newest first.
func (l *Ledger) Rounds(limit int) ([]StoredRound, error) {
	return l.rounds("ORDER BY id DESC LIMIT ?", limit)
}

// Round returns one round, or sql.ErrNoRows.
func (l *Ledger) Round(id uint64) (StoredRound, error) {
	rounds, err := l.rounds("WHERE id = ?", id)
	if err == nil && len(rounds) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return StoredRound{}, err
	}
	return rounds[0], nil
}

// Proof returns what was stored to verify a round, as JSON; sql.ErrNoRows if it
// is not kept.
func (l *Ledger) Proof(round uint64) ([]byte, error) { return proof(l.db, round) }

// ReadProof is Proof of a ledger file that a core may be using.
func ReadProof(path string, round uint64) ([]byte, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite3", "file:"+escape(path)+"?mode=ro&_busy_timeout=5000")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return proof(db, round)
}

func proof(db *sql.DB, round uint64) ([]byte, error) {
	var packed []byte
	if err := db.QueryRow("SELECT proof FROM proof WHERE round = ?", round).Scan(&packed); err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func (l *Ledger) debts() (map[string]arbiter.Debt, error) {
	type owed struct {
		entity string
		arbiter.Debt
	}
	list, err := collect(l.db, func(rows *sql.Rows) (o owed, err error) {
		var at sql.NullInt64
		err = rows.Scan(&o.entity, &o.GPUSeconds, &at)
		o.At = fromMicros(at)
		return o, err
	}, "SELECT * FROM debt")
	out := make(map[string]arbiter.Debt, len(list))
	for _, o := range list {
		out[o.entity] = o.Debt
	}
	return out, err
}

func (l *Ledger) places() (map[arbiter.Place]arbiter.Measured, error) {
	type measured struct {
		at arbiter.Place
		m  arbiter.Measured
	}
	list, err := collect(l.db, func(rows *sql.Rows) (m measured, err error) {
		var text string
		if err = rows.Scan(&m.at.User, &m.at.Model, &text); err == nil {
			err = json.Unmarshal([]byte(text), &m.m)
		}
		return m, err
	}, "SELECT * FROM place")
	out := make(map[arbiter.Place]arbiter.Measured, len(list))
	for _, m := range list {
		out[m.at] = m.m
	}
	return out, err
}

func (l *Ledger) rounds(where string, args ...any) ([]StoredRound, error) {
	rounds, err := collect(l.db, func(rows *sql.Rows) (r StoredRound, err error) {
		var at sql.NullInt64
		var took int64
		err = rows.Scan(&r.ID, &at, &r.Free, &r.Apps, &r.Welfare, &r.Bound, &r.Exact, &took)
		r.At, r.Took = fromMicros(at), time.Duration(took)*time.Microsecond
		return r, err
	}, "SELECT * FROM round "+where, args...)
	for i := range rounds {
		if err == nil {
			rounds[i].Bids, err = l.bids(rounds[i].ID)
		}
	}
	return rounds, err
}

func (l *Ledger) bids(round uint64) ([]arbiter.BidRecord, error) {
	return collect(l.db, func(rows *sql.Rows) (b arbiter.BidRecord, err error) {
		var places string
		var id uint64
		var slack float64
		if err = rows.Scan(&id, &b.App, &b.In, &b.Rho, &b.After, &b.Wanted, &b.Won, &b.Payment, &places,
			&b.PaymentLow, &b.Gain, &b.Price, &slack, &b.Source); err == nil {
			b.Slack = time.Duration(slack * float64(time.Second))
			err = json.Unmarshal([]byte(places), &b.Places)
		}
		return b, err
	}, "SELECT * FROM bid WHERE round = ? ORDER BY rho DESC, app", round)
}

func collect[T any](db *sql.DB, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
